// The store's table of files: the identity of each file that the node's ranks have opened.
//
// A file is identified by device, inode and, where the file system has it, birth time. Its path is
// not part of the identity, because it may change while the file is open.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "storage/store/store.hpp"

namespace assay::storage {

// The status of a file, from statx(2). Times are in ns since the epoch.
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
// Whether the status is that of the slot's file. `earlier_boot`: the slot is from before the last
// boot, so device numbers may have changed and are not compared.
bool is_same_file(const FileSlot& slot, const FileStatus& status, bool earlier_boot = false);

// The slot of a file; file_slots: the file has none.
std::uint32_t find_slot(const Store& store, const FileStatus& status);

// The node's spin lock on the file table, held until the end of the scope. A process takes it over
// from an owner that has ended.
class TableLock {
public:
    explicit TableLock(const Store& store);
    ~TableLock();
    TableLock(const TableLock&) = delete;
    TableLock& operator=(const TableLock&) = delete;

private:
    std::atomic<std::uint32_t>& lock_;
};

// Tries to take a lock, whose value is the process number of its owner. `check_owner`: takes it
// over from an owner that has ended; that check makes system calls.
bool try_lock(const Store& store, std::atomic<std::uint32_t>& lock, bool check_owner = true);

// Finds or assigns the file's slot and counts one more user of it. If no rank had the file open and
// the file is not as the last close left it, the store's data of it are outdated and ignored from
// now on. Returns file_slots if the table is full or the path is too long.
std::uint32_t acquire_slot(const Store& store, const FileStatus& status, const std::string& path);
// Stores the present path of the open file.
void update_path(const Store& store, std::uint32_t slot, int fd);
// Call it after this job has modified the file: stores the file's present modification time, with
// which recovery compares.
void note_modified(const Store& store, std::uint32_t slot, int fd);
// Counts one user less. `closed`: the file's state at the close, or null.
void release_slot(const Store& store, std::uint32_t slot, const FileStatus* closed);
// Drops the data of a deleted file, unless a rank of the node has it open.
void drop_deleted_file(const Store& store, const FileStatus& status);

}  // namespace assay::storage
