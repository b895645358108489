// A store: made by one process of the node, mapped by all. Knows nothing of MPI.
//
// No exceptions: this is loaded into other people's programs. What fails says so in `Failure`, in
// words for them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "storage/store/layout.hpp"

namespace assay::storage {

struct Failure {
    std::string what;
    explicit operator bool() const { return !what.empty(); }
};

enum class Backing { memory, device, file };  // tmpfs; /dev/dax*; any other file system

class Store {
public:
    // `where` is a folder, a file or a /dev/dax device. Made in the state `making`, locked against
    // other jobs. `size` 0 stands for a sensible share of what is there.
    static std::unique_ptr<Store> make(const std::string& where, std::uint64_t size,
                                       std::uint32_t ranks, const std::string& job,
                                       const std::string& name, Failure& failure);
    static std::unique_ptr<Store> attach(const std::string& path, Failure& failure);
    ~Store();
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;

    const std::string& path() const { return path_; }
    Backing backing() const { return backing_; }
    bool persistent() const { return persistent_; }
    const Shape& shape() const { return shape_; }
    std::uint32_t ranks() const { return shape_.ranks; }
    int descriptor() const { return fd_; }

    Superblock& super() const { return *at<Superblock>(0); }
    FileSlot& file(std::uint32_t slot) const {
        return *at<FileSlot>(Shape::files() + slot * sizeof(FileSlot));
    }
    RankHead& head(std::uint32_t rank) const { return *at<RankHead>(shape_.head(rank)); }
    Record& record(std::uint32_t rank, std::uint64_t position) const {
        return *at<Record>(shape_.records(rank) + position % shape_.record_slots * sizeof(Record));
    }
    char* data(std::uint32_t rank, std::uint64_t position) const {
        return map_ + shape_.data(rank) +
               position % head(rank).ring.load(std::memory_order_relaxed);
    }

    // This moment on the job's clock, in nanoseconds.
    std::uint64_t now() const;
    // Never again earlier than `moment` (another node has seen it).
    void no_earlier(std::uint64_t moment) const;

    // Someone waits for what is to be drained.
    void hurry() const;

    // Makes [from, from + bytes) of the store real memory, or fails with errno.
    int populate(std::size_t from, std::size_t bytes) const;
    // Enters what is real memory already into this process's page tables, before it is read.
    void map_ahead(std::size_t from, std::size_t bytes) const;

    // All done: the store goes (a file) or is marked as empty (a device). Its maker calls it.
    void remove();

private:
    Store() = default;
    bool map(std::size_t bytes, Failure& failure);
    int touch(std::size_t begin, std::size_t end) const;
    void format(const std::string& job);
    template <class T>
    T* at(std::size_t offset) const {
        return reinterpret_cast<T*>(map_ + offset);
    }

    std::string path_;
    Backing backing_ = Backing::memory;
    bool persistent_ = false;
    Shape shape_{};
    int fd_ = -1;
    char* map_ = nullptr;
    std::size_t mapped_ = 0;
};

// The check that a record carries.
std::uint64_t check_of(const Record& record);

// The node's lock on the table of files and the shared pointers: held for a few instructions.
class TableLock {
public:
    explicit TableLock(const Store& store);
    ~TableLock();
    TableLock(const TableLock&) = delete;
    TableLock& operator=(const TableLock&) = delete;

private:
    std::atomic<std::uint32_t>& word_;
};

// The slot of the file, made if it has none; file_slots when the table is full or the path too
// long.
std::uint32_t slot_of(const Store& store, std::uint64_t device, std::uint64_t inode,
                      const std::string& path);
// The slot of the file if it has one, else file_slots.
std::uint32_t find_slot(const Store& store, std::uint64_t device, std::uint64_t inode);

}  // namespace assay::storage
