// A model of what a power failure leaves of persistent memory and of the files in a file system.
//
// The medium certainly has each cache line that was written back and then fenced. A line that was
// written back but not fenced, or only changed, may be on the medium too, whole or in part: the
// hardware guarantees only aligned words of 8 bytes. A file certainly has the data that were
// fsynced; each page that was written since may be on the disk or not.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "storage/store/file_table.hpp"
#include "storage/store/persist.hpp"
#include "storage/store/store.hpp"

namespace assay::storage {

using Random = std::mt19937_64;

// Persistent memory. `live` is the memory as the program sees it.
class Medium final : public PersistObserver {
public:
    Medium(char* live, std::size_t bytes, Random& random);
    ~Medium();
    Medium(const Medium&) = delete;
    Medium& operator=(const Medium&) = delete;
    // Adds a range to the model; its present contents are on the medium. Bytes outside of all
    // ranges are not modelled.
    void add(std::size_t offset, std::size_t bytes);
    std::function<void()> at_crash_point;  // called before each write-back and each fence

    void write_back(const void* from, std::size_t bytes) override;
    void fence() override;
    // Writes some of the changed lines to the medium, as a processor that evicts them from its
    // cache.
    void evict_lines();
    // Writes into `to` the contents of the medium after a power failure at this moment.
    void lose_power(char* to);

private:
    struct Range {
        std::size_t offset, bytes;
    };
    struct Line {
        char bytes[cache_line];
    };
    template <class Visit>
    void for_each_changed_line(Visit visit);

    char *live_, *durable_;
    std::size_t bytes_;
    Random& random_;
    std::vector<Range> ranges_;
    std::map<std::size_t, Line> written_back_;  // by offset; not fenced
};

// The files of a job in `folder`/live; a power failure leaves them in `folder`/lost.
class FileSystem {
public:
    FileSystem(std::string folder, Random& random);
    ~FileSystem();
    FileSystem(const FileSystem&) = delete;
    FileSystem& operator=(const FileSystem&) = delete;

    // A new file whose contents are on the disk. Returns its number.
    std::size_t create(const std::string& name, const std::string& contents);
    void remove(std::size_t file);
    int descriptor(std::size_t file) const { return files_[file].live_fd; }
    std::string path(std::size_t file) const { return folder_ + "/live/" + files_[file].name; }
    void note_fsync(int fd);

    void lose_power();
    // Changes the store's slots so that they describe the files that the power failure has left.
    void redirect(Store& store, std::uint32_t slots) const;
    bool exists_after(std::size_t file) const { return files_[file].exists; }
    std::string contents_after(std::size_t file) const;

private:
    struct File {
        std::string name, synced;
        int live_fd, lost_fd;
        FileStatus live, lost;
        bool removed;
        bool exists;  // after the last power failure
    };
    std::string hidden_path(std::size_t file) const;
    std::string lost_contents(const File& file) const;

    std::string folder_;
    Random& random_;
    std::vector<File> files_;
};

// Before each fsync of a file the action is called; it returns 0, or the errno with which the fsync
// fails. It runs in the thread that calls fsync.
void on_fsync(std::function<int(int fd)> action);
// From now on stores count as persistent memory, and their files as files on a disk.
void model_persistent_memory(bool on);
// From now on all files are on a file system with this number (linux/magic.h). 0: the real one.
void model_file_system(long type);
// `action` is called when the next store is mapped, with its address and size.
void on_next_map(std::function<void(char*, std::size_t)> action);
// The device has no space for a file's bytes from this offset on. 0: it has space.
void fill_device(std::size_t from);
// Whether writes to files fail with EIO from now on. Returns the previous state.
bool fail_writes(bool on);
// This process ends in its next write to a file, before the write.
void exit_in_next_write();

}  // namespace assay::storage
