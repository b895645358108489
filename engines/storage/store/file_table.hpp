// The store's table of files: the identity of each file that the node's ranks have opened.
//
// A file is what a descriptor says: device, inode, and time of birth where the file system has one.
// Its path may change while it is open.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "storage/store/store.hpp"

namespace assay::storage {

// What the file system says of an open file. Times are in ns since the epoch.
struct FileStatus {
    std::uint64_t device = 0, inode = 0;
    std::int64_t birth_ns = 0;  // 0: the file system does not say
    std::int64_t size = 0, mtime_ns = 0, ctime_ns = 0;
    std::uint32_t links = 0;
    bool regular = false;
};
// Returns 0 or errno.
int read_status(int fd, FileStatus& status);
int read_status(const char* path, FileStatus& status);
// Whether it is the file of the slot. `earlier_boot`: device numbers may have changed since.
bool is_same_file(const FileSlot& slot, const FileStatus& status, bool earlier_boot = false);

// The node's spin lock on the file table and the shared pointers. It is taken over from a process
// that has ended.
class TableLock {
public:
    explicit TableLock(const Store& store);
    ~TableLock();
    TableLock(const TableLock&) = delete;
    TableLock& operator=(const TableLock&) = delete;

private:
    std::atomic<std::uint32_t>& lock_;
};

// Tries to take a lock that holds its owner's process number. `check_owner`: also from one that
// has ended, which costs system calls.
bool try_lock(const Store& store, std::atomic<std::uint32_t>& lock, bool check_owner = true);

// Takes the file's slot, or a new one, and counts a user. If nobody had the file open and it is not
// as the last close left it, the store's data of it are outdated: they are ignored from now on.
// file_slots: the table is full or the path is too long.
std::uint32_t acquire_slot(const Store& store, const FileStatus& status, const std::string& path);
// Stores the path that the open file has now.
void update_path(const Store& store, std::uint32_t slot, int fd);
// This job has modified the file: recovery compares with its present modification time.
void note_modified(const Store& store, std::uint32_t slot, int fd);
// Counts a user less. With a status the file is closed in that state. Returns the users left.
std::uint32_t release_slot(const Store& store, std::uint32_t slot, const FileStatus* closed);
// The data of the file are dropped, if no rank of the node has it open.
void drop_deleted_file(const Store& store, const FileStatus& status);

}  // namespace assay::storage
