// Records heap traces: starts a program with the hooks, or attaches to a running process, and
// records it and every process that it starts.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace assay::heap {

struct Settings {
    std::string directory;             // for the traces, PID.N.heap; it must exist
    std::string library;               // path of the hook library
    std::vector<std::string> program;  // its argv
    pid_t process = 0;                 // attach to this process instead of starting a program
    double seconds = 0;                // how long to stay attached; 0: until it ends, or SIGINT
    std::uint64_t min_block_bytes = 0, sample_bytes = 0;  // as in ProcessInfo (trace/format.hpp)
    std::string ranks;                                    // "0,3"; empty: all
    bool records_python = true;  // record the Python functions of interpreters
    bool watches_faults = true;  // set to false if the system does not allow it
    std::uint64_t ran_ns = 0;    // run time of the process before attaching
    std::uint64_t dump_at = 0;   // resident bytes at which an interim profile is written; 0: never
};

// Runs the program. Returns its wait status (waitpid(2)). On SIGUSR1 the traces so far are
// analysed into PID.N.dumpM.json. Throws Error when the program cannot be started; then nothing was
// recorded.
int record(Settings settings);

// Attaches to settings.process until SIGINT, SIGTERM, settings.seconds or its end. Prints "attached
// PID" and at the end "left PID S S", the longest stops at attaching and detaching in seconds.
// Throws Error when it cannot attach.
void record_running(Settings settings);

}  // namespace assay::heap
