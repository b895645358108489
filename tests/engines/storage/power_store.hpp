// What the power-loss tests share: a folder whose stores count as persistent memory, and the store
// that a power failure leaves.
#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "power_model.hpp"
#include "storage/store/file_table.hpp"
#include "storage/store/store.hpp"

namespace assay::storage {

namespace fs = std::filesystem;

constexpr std::uint32_t ranks = 2;
constexpr std::uint32_t modelled_slots = 4;
constexpr std::size_t word = sizeof(std::uint64_t);

// A temporary folder, in which stores count as persistent memory.
struct Folder {
    fs::path path = fs::path("/dev/shm") / ("assay-power-test-" + std::to_string(getpid()));
    Folder() {
        fs::create_directories(path);
        model_persistent_memory(true);
    }
    ~Folder() {
        model_persistent_memory(false);
        fs::remove_all(path);
    }
};

// The store that a power failure leaves, in a file of the same size.
class CrashedStore {
public:
    CrashedStore(std::string path, std::size_t bytes) : path_(std::move(path)), bytes_(bytes) {
        std::ofstream{path_};
        fs::resize_file(path_, bytes_);
        const auto fd = fopen(path_.c_str(), "r+");
        map_ = static_cast<char*>(
            mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(fd), 0));
        fclose(fd);
    }
    ~CrashedStore() { munmap(map_, bytes_); }
    CrashedStore(const CrashedStore&) = delete;
    CrashedStore& operator=(const CrashedStore&) = delete;
    char* map() const { return map_; }
    // The store as the machine finds it after the next boot. Null: it is not a valid store.
    std::unique_ptr<Store> attach() const {
        Failure failure;
        auto store = Store::attach(path_, false, failure);
        if (store) std::strcpy(store->superblock().boot, "the boot after the power failure");
        return store;
    }

private:
    std::string path_;
    std::size_t bytes_;
    char* map_;
};

// A store whose rings are so small that they wrap often.
inline std::unique_ptr<Store> create_small_store(const std::string& path) {
    Failure failure;
    {
        auto store = Store::create(path, 32u << 20, ranks, "job", "s", failure);
        REQUIRE_MESSAGE(store, failure.message);
        store->superblock().record_slots = 64;
        store->superblock().ring_bytes = 32u << 10;
    }
    auto store = Store::attach(path, false, failure);
    REQUIRE_MESSAGE(store, failure.message);
    REQUIRE(store->persistent());
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        auto& head = store->head(rank);
        head.ring_bytes = head.prefaulted = store->layout().ring_bytes;
    }
    // The slots that are not modelled belong to files that stay open.
    for (std::uint32_t k = modelled_slots; k < file_slots; ++k)
        store->file(k).generation = store->file(k).users = 1;
    // The job has run for a while.
    store->superblock().alive_ns -= 3'600'000'000'000;
    store->set_phase(Phase::active);
    return store;
}

}  // namespace assay::storage
