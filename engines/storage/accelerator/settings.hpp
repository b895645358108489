// What the user asks for, by environment: the same on every rank, or nothing is accelerated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay::storage {

enum class Visibility { immediate, collective, commit };
enum class Reach { automatic, service, rma };

struct Settings {
    std::vector<std::string>
        files;  // ASSAY_IO_FILES: patterns, with ! before one that excludes; none: all files
    std::string store = "/dev/shm";  // ASSAY_IO_STORE
    std::uint64_t size = 0;          // ASSAY_IO_SIZE, of a node; 0: a share of what is there
    Visibility visibility = Visibility::immediate;  // ASSAY_IO_CONSISTENCY
    Reach reach = Reach::automatic;                 // ASSAY_IO_TRANSPORT, to other nodes
    bool detach = false;  // ASSAY_IO_DETACH: close does not wait for the drain
    bool stored =
        true;  // ASSAY_IO_SYNC=stored|visible: what MPI_File_sync means; visible if detached
    bool strict = false;         // ASSAY_IO_REQUIRE: without acceleration the program does not run
    unsigned drain_threads = 2;  // ASSAY_IO_DRAIN_THREADS
    unsigned drain_lag_ms = 20;  // ASSAY_IO_DRAIN_LAG, ms
    double warm = 0.25;  // ASSAY_IO_WARM: seconds of the start that may go into making memory real
    unsigned ranks_per_node =
        0;  // ASSAY_IO_RANKS_PER_NODE: treat so many as a node of their own (to try things)
    std::string interface;  // ASSAY_IO_INTERFACE: network interface of the service
    std::string job;        // ASSAY_IO_JOB: name of the job in the stores' names
    std::string wrong;      // what of it cannot be understood, in words

    static Settings from_environment();
    // Files that the patterns mean: by the whole name, or by its last part.
    bool covers(const std::string& name) const;
    // Two ranks with the same digest have the same settings.
    std::uint64_t digest() const;
};

}  // namespace assay::storage
