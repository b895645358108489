// Decides from the stacks of another process's threads whether a thread can call a function, and
// whether the process can be patched under its threads.
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
    // It runs the program's own code, or waits in a C library function that holds no lock.
    bool can_call = false;
    // It is not in the loader or binding a symbol, and does not iterate over the loaded objects.
    bool can_patch = false;
    bool is_in_hooks = false;  // a frame of the hooks' library is on its stack
};

class Process {
public:
    // Reads which objects are loaded now. `hooks`: path of the library. Throws Error.
    Process(pid_t pid, const std::string& hooks);
    ~Process();
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    ThreadSafety safety_of(pid_t tid) const;  // of a stopped thread

    // Address of a function in its C library, or in the hooks' library; 0 when there is none.
    std::uint64_t find_in_libc(const char* name) const;
    std::uint64_t find_in_hooks(const char* name) const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace assay::attach
