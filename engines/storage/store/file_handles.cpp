// Opens files for writing through descriptors that other processes of the node hold
// (/proc/PID/fd/NUMBER), or by path, and checks that the opened file is the slot's file.
#include "storage/store/file_handles.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "storage/store/file_table.hpp"

namespace assay::storage {
namespace {

// Opens a path for writing if it is the slot's file. The flags keep a FIFO from blocking and a
// terminal from becoming the controlling one.
SharedDescriptor open_same_file(const char* path, const FileSlot& slot, bool earlier_boot,
                                int& error) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        error = errno == ENOENT || errno == ENXIO || errno == ENOTDIR ? ESTALE : errno;
        return nullptr;
    }
    auto descriptor = std::make_shared<const Descriptor>(fd);
    FileStatus status;
    error = read_status(fd, status);
    if (!error && (!status.regular || !is_same_file(slot, status, earlier_boot))) error = ESTALE;
    return error ? nullptr : descriptor;
}

}  // namespace

Descriptor::~Descriptor() {
    if (fd_ >= 0) close(fd_);
}

FileHandles::FileHandles(Store& store, std::uint32_t rank)
    : store_(store), rank_(rank), earlier_boot_(store.is_from_earlier_boot()) {
    if (rank_ < store_.ranks()) store_.head(rank_).pid = static_cast<std::uint32_t>(getpid());
}

FileHandles::~FileHandles() {
    for (const auto& entry : held_)
        if (auto* number = published_number(entry.slot)) *number = 0;
}

// The table entry in which this process publishes its descriptor of the file; null: it has none.
std::atomic<std::int32_t>* FileHandles::published_number(std::uint32_t slot) const {
    if (rank_ == background_rank) return &store_.background_descriptor_of(slot);
    return rank_ < store_.ranks() ? &store_.descriptor_of(rank_, slot) : nullptr;
}

void FileHandles::publish(std::uint32_t slot) const {
    auto* entry_number = published_number(slot);
    if (!entry_number) return;
    std::int32_t number = 0;
    for (const auto& entry : held_)
        if (entry.slot == slot) number = entry.descriptor->number() + 1;
    entry_number->store(number, std::memory_order_release);
}

void FileHandles::hold(std::uint32_t slot, SharedDescriptor descriptor) {
    std::lock_guard guard(lock_);
    held_.push_back({slot, std::move(descriptor)});
    publish(slot);
}

void FileHandles::release(std::uint32_t slot, const SharedDescriptor& descriptor) {
    std::lock_guard guard(lock_);
    const auto entry = std::find_if(held_.begin(), held_.end(), [&](const Held& candidate) {
        return candidate.slot == slot && candidate.descriptor == descriptor;
    });
    if (entry == held_.end()) return;
    const SharedDescriptor still_open =
        std::move(entry->descriptor);  // keeps the file open until its number is withdrawn
    held_.erase(entry);
    publish(slot);
}

SharedDescriptor FileHandles::held(std::uint32_t slot) const {
    std::lock_guard guard(lock_);
    for (const auto& entry : held_)
        if (entry.slot == slot) return entry.descriptor;
    return nullptr;
}

std::vector<std::uint32_t> FileHandles::held_slots() const {
    std::lock_guard guard(lock_);
    std::vector<std::uint32_t> slots;
    slots.reserve(held_.size());
    for (const auto& entry : held_) slots.push_back(entry.slot);
    std::sort(slots.begin(), slots.end());
    slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
    return slots;
}

// `number`: an entry of a DescriptorTable, which is the descriptor + 1, or 0 for none.
SharedDescriptor FileHandles::open_through_proc(std::uint32_t pid, std::int32_t number,
                                                std::uint32_t slot, int& error) const {
    if (!number) return nullptr;
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%u/fd/%d", pid, number - 1);
    return open_same_file(path, store_.file(slot), earlier_boot_, error);
}

SharedDescriptor FileHandles::open_by_path(std::uint32_t slot, int& error) const {
    return open_same_file(store_.file(slot).path, store_.file(slot), earlier_boot_, error);
}

SharedDescriptor FileHandles::open_for_writing(std::uint32_t slot, int& error) const {
    if (auto descriptor = held(slot)) return descriptor;
    if (earlier_boot_) return open_by_path(slot, error);
    for (std::uint32_t rank = 0; rank < store_.ranks(); ++rank)
        if (auto descriptor = open_through_proc(
                store_.head(rank).pid.load(), store_.descriptor_of(rank, slot).load(), slot, error))
            return descriptor;
    if (auto descriptor =
            open_through_proc(store_.superblock().background.load(),
                              store_.background_descriptor_of(slot).load(), slot, error))
        return descriptor;
    return open_by_path(slot, error);
}

}  // namespace assay::storage
