// Starts a program with the hooks in it, or puts them into a process that runs already, and records
// it and every process that it starts.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace assay::heap {

struct Settings {
    std::string folder;   // of the traces, PID.N.heap; it must exist
    std::string library;  // of the hooks
    std::vector<std::string> program;
    pid_t process = 0;                       // to be attached to, in place of a program
    double seconds = 0;                      // how long; 0: until it ends, or SIGINT
    std::uint64_t at_least = 0, sample = 0;  // as in Process (trace/format.hpp)
    std::string ranks;                       // "0,3"; empty: all
    bool reads_python = true;                // whose function runs what, in interpreters
    bool watches_faults = true;  // page faults; false as well where the system does not allow it
    std::uint64_t ran_ns = 0;    // how long the process had run when it was attached to
    std::uint64_t dump_at =
        0;  // bytes in memory at which a profile is written on the way; 0: never
};

// Gives the program's exit status as wait() does. On SIGUSR1 the traces so far are analysed:
// PID.N.dumpM.json. Throws Error when the program cannot be started; then nothing was recorded.
int record(Settings settings);

// Says on standard output "attached PID", and when it lets the process go on, how long that stood
// still at most. Until SIGINT or SIGTERM. Throws Error when it cannot be attached to.
void record_running(Settings settings);

}  // namespace assay::heap
