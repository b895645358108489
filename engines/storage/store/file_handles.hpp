// The file descriptors through which the drain writes into files.
//
// A rank holds a descriptor of each file that it has opened for writing, from the open until its
// data are in the file. Renaming, moving or unlinking the file does not change what it refers to.
// Its number is in the store, so that the process that drains can open it through
// /proc/PID/fd/NUMBER. The background drain holds such descriptors too. Recovery, whose ranks have
// ended, opens the file by its path.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "storage/store/store.hpp"

namespace assay::storage {

// An owned file descriptor.
class Descriptor {
public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor();
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int number() const { return fd_; }

private:
    int fd_;
};
using SharedDescriptor = std::shared_ptr<const Descriptor>;

class FileHandles {
public:
    static constexpr std::uint32_t no_rank = ~0u;
    static constexpr std::uint32_t background_rank = ~0u - 1;
    // `rank`: the number of this process's rank on the node; background_rank: this process is the
    // background drain; no_rank: neither, so it publishes no descriptors.
    explicit FileHandles(Store& store, std::uint32_t rank = no_rank);
    ~FileHandles();
    FileHandles(const FileHandles&) = delete;
    FileHandles& operator=(const FileHandles&) = delete;

    // Holds a descriptor that can write the slot's file, and publishes it.
    void hold(std::uint32_t slot, SharedDescriptor descriptor);
    // Undoes one hold() of the descriptor.
    void release(std::uint32_t slot, const SharedDescriptor& descriptor);
    // A descriptor that this process holds; null: none.
    SharedDescriptor held(std::uint32_t slot) const;
    // The slots of all held files, sorted.
    std::vector<std::uint32_t> held_slots() const;

    // A descriptor to write the slot's file with: one that this process holds, or one that another
    // rank of the node or the background drain holds, or one that is opened by the file's path.
    // Returns null and sets `error` to an errno on failure; ESTALE: another file, or none, is at
    // that path.
    SharedDescriptor open_for_writing(std::uint32_t slot, int& error) const;

private:
    struct Held {
        std::uint32_t slot;
        SharedDescriptor descriptor;
    };
    std::atomic<std::int32_t>* published_number(std::uint32_t slot) const;
    SharedDescriptor open_through_proc(std::uint32_t pid, std::int32_t number, std::uint32_t slot,
                                       int& error) const;
    SharedDescriptor open_by_path(std::uint32_t slot, int& error) const;
    void publish(std::uint32_t slot) const;

    Store& store_;
    std::uint32_t rank_;
    bool earlier_boot_ = false;  // the store was made before the machine was restarted
    mutable std::mutex lock_;
    std::vector<Held> held_;
};

}  // namespace assay::storage
