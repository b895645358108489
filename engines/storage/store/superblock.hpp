// Reads the superblock of a file or device that may be a store, without attaching to it.
#pragma once

#include <cstdint>
#include <string>

#include "storage/store/layout.hpp"

namespace assay::storage {

// Some fields of a superblock; `is_store` is false if there is none.
struct SuperblockSummary {
    bool is_store = false;
    std::uint32_t version = 0;
    Phase phase = Phase::clean;
    std::string job, keep, boot;
    StoreLayout layout{};
    std::uint64_t bytes = 0;
    bool persistent = false;

    // Whether the layout is valid and lies within the store, and the store within the bytes of its
    // file or device.
    bool fits(std::uint64_t existing_bytes) const;
    // Whether it is kept under this name for a later job.
    bool is_kept_as(const std::string& name) const;
};
SuperblockSummary read_superblock(int fd);

// The version of a store's layout; 0 if the path is not a store of this user. Opens only regular
// files and dax devices.
std::uint32_t version_of(const std::string& path);
// Whether a file of this user is empty or in the phase `formatting`: a job creates the store, or
// has ended before it was complete. Such a store has no data.
bool is_incomplete(const std::string& path);
bool is_incomplete(int fd);

// The kernel's identifier of the present boot.
std::string boot_id();

}  // namespace assay::storage
