// Where the threads of another process stand: whether one may be made to call a function, and
// whether the process may be changed under them.
//
// A thread inside the allocator, the loader, fork or the like holds locks that a call in its place
// would wait for in vain. So stacks are unwound, by libdwfl from the call-frame information of what
// is loaded; a stack that cannot be read to its end counts as one that may be anywhere.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

namespace assay::attach {

struct Standing {
    bool may_call = false;  // it runs the program's own code, or waits in a call that holds nothing
    bool lets_be_changed =
        false;  // it is not about to load or bind, and holds no list of what is loaded
    bool is_in_hooks = false;  // of a library of this name, or was called from there
};

class Process {
public:
    // What is loaded at this moment. `hooks`: path of the library. Throws Error.
    Process(pid_t pid, const std::string& hooks);
    ~Process();
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    // Of a thread that is stopped.
    Standing standing(pid_t tid) const;

    // A function of its C library, or of the hooks; 0 when there is none of that name.
    std::uint64_t in_libc(const char* name) const;
    std::uint64_t in_hooks(const char* name) const;

private:
    struct Inner;
    std::unique_ptr<Inner> inner_;
};

}  // namespace assay::attach
