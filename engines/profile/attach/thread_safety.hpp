// Determines from the stacks of another process's threads whether a thread can call a function
// safely, and whether the hooks can be written while the threads are stopped there.
//
// A thread inside the allocator, the loader or fork holds locks that the call could wait for
// forever. Stacks are unwound by libdwfl from the call-frame information of the loaded objects. A
// thread whose stack cannot be unwound to its end is never considered safe to call in.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

namespace assay::attach {

struct ThreadSafety {
    // The thread runs the program's own code, or waits in a C library function that holds no lock.
    bool can_call = false;
    // The thread is not in the loader, binds no symbol and does not iterate over the loaded
    // objects.
    bool can_patch = false;
    bool is_in_hooks = false;  // a frame of the hooks' library is on its stack
};

class Process {
public:
    // Reads the list of loaded objects. `hooks`: path of the hook library. Throws Error.
    Process(pid_t pid, const std::string& hooks);
    ~Process();
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    ThreadSafety assess_thread(pid_t tid) const;  // `tid`: a stopped thread

    // The address of a function in the C library or in the hook library; 0 if there is none.
    std::uint64_t find_in_libc(const char* name) const;
    std::uint64_t find_in_hooks(const char* name) const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace assay::attach
