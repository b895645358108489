// The settings of the accelerator of parallel I/O, from environment variables. They must be the
// same on every rank. docs/parallel-io.md explains them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay::storage {

// When a write becomes visible to other ranks: at once; after a collective transfer; after sync or
// close.
enum class Visibility { immediate, collective, commit };

struct Settings {
    std::vector<std::string>
        file_patterns;  // ASSAY_IO_FILES: glob patterns; "!" excludes; empty: all files
    std::string store = "/dev/shm";  // ASSAY_IO_STORE
    std::uint64_t size = 0;          // ASSAY_IO_SIZE: bytes per node; 0: a share of the free space
    Visibility visibility = Visibility::immediate;  // ASSAY_IO_CONSISTENCY
    // ASSAY_IO_UNTIL=file|memory: what sync and close wait for. false (file): the file system has
    // all data on its medium. true (memory): the nodes' stores have them, and background drains
    // will write them.
    bool until_memory = false;
    unsigned retry_s = 300;  // ASSAY_IO_RETRY: how long a background drain repeats failed writes
    std::string keep;        // ASSAY_IO_KEEP: name under which the stores are kept for later jobs
    unsigned wait_s = 600;   // ASSAY_IO_WAIT: how long open waits for data of other jobs
    std::string drain_program;   // ASSAY_IO_DRAIN_PROGRAM: path of assay-store; for tests
    bool required = false;       // ASSAY_IO_REQUIRE: abort if there is no acceleration
    bool direct = true;          // ASSAY_IO_DIRECT: write to local file systems without the store
    unsigned drain_threads = 2;  // ASSAY_IO_DRAIN_THREADS
    unsigned drain_lag_ms = 20;  // ASSAY_IO_DRAIN_LAG: pause between two drains, ms
    double prefault_seconds = 0.25;  // ASSAY_IO_WARM: time for allocating pages at the start
    unsigned ranks_per_node = 0;  // ASSAY_IO_RANKS_PER_NODE: splits a node into several, for tests
    std::string interface;        // ASSAY_IO_INTERFACE: network interface of the service
    std::string job;              // ASSAY_IO_JOB: name of the job in the stores' names
    std::string error;            // why a setting is invalid; empty: all are valid

    static Settings from_environment();
    // Whether the patterns select a file, by its whole name or by its last component.
    bool covers(const std::string& name) const;
    // Equal on two ranks if their settings are equal.
    std::uint64_t digest() const;
};

}  // namespace assay::storage
