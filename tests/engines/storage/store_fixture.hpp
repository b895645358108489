// Helpers of the store's tests: a temporary folder, a small store in it, and writes into its rings.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "storage/store/file_table.hpp"
#include "storage/store/store.hpp"
#include "storage/store/writer.hpp"
#include "write_block.hpp"

using namespace assay::storage;
namespace fs = std::filesystem;

// Runs once, before the next attempt to lock a file alone (other_jobs_test.cpp).
extern std::function<void()> before_lock;
// Runs once, when the next exclusive lock becomes a shared one: between the release of the one and
// the grant of the other, with the descriptor.
extern std::function<void(int)> between_locks;

struct Folder {
    fs::path path = fs::path("/dev/shm") / ("assay-store-test-" + std::to_string(getpid()));
    Folder() { fs::create_directories(path); }
    ~Folder() { fs::remove_all(path); }
    // Makes an empty file and returns its path.
    std::string file(const char* name) const {
        std::ofstream(path / name);
        return path / name;
    }
};

inline std::string read_contents(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

// Opens the file in the store and returns its slot.
inline std::uint32_t slot_of_file(const Store& store, const std::string& path) {
    FileStatus status;
    REQUIRE(read_status(path.c_str(), status) == 0);
    return acquire_slot(store, status, path);
}

constexpr std::uint64_t small_store = 64u << 20;

inline std::unique_ptr<Store> create_store(const std::string& folder, std::uint32_t ranks,
                                           const char* name = "t",
                                           std::uint64_t bytes = small_store) {
    Failure failure;
    auto store = Store::create(folder, bytes, ranks, "job", name, failure);
    REQUIRE_MESSAGE(store, failure.message);
    store->set_phase(Phase::active);
    return store;
}

// Waits until rank 0's whole ring has its pages: the thread that allocates them changes what a test
// measures of the memory.
inline void await_prefault(const Store& store) {
    const auto& head = store.head(0);
    for (int wait = 0; head.prefaulted.load() < head.ring_bytes.load() && wait < 60'000; ++wait)
        usleep(1000);
    REQUIRE(head.prefaulted.load() == head.ring_bytes.load());
}
