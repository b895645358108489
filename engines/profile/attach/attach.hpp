// Attaches the recorder's hooks to a running process, and detaches them.
//
// Attaching takes two steps. First one thread, which holds no lock, loads the library with dlopen
// while all other threads run: a lock that it waits for is eventually released. Then all threads
// are stopped for a moment. The library, which allocates nothing now, creates its buffers and
// writes its hooks into the objects' GOT entries. If no suitable moment is found, the process is
// left unchanged. Detaching needs one more such moment.
//
// The library stays loaded, because a thread may be inside a hook when the hooks are removed.
#pragma once

#include <sys/types.h>

#include <functional>
#include <span>
#include <string>

#include "core/clock.hpp"
#include "profile/attach/memory.hpp"
#include "profile/attach/threads.hpp"

namespace assay::attach {

class Attachment {
public:
    // Attaches. `library`: path of the hooks. `settings`: as in heap/settings.hpp. `on_stopped`
    // is called with the process's threads while all of them are stopped. Throws Error; the process
    // is then unchanged.
    Attachment(pid_t pid, const std::string& library, const std::string& settings,
               const std::function<void(std::span<const pid_t>)>& on_stopped);

    void detach();         // throws Error
    bool is_over() const;  // the process has ended, or has executed another program
    // Time from the process's start to the attachment.
    Nanoseconds process_age() const { return process_age_; }
    // The longest time for which all threads were stopped.
    Nanoseconds longest_stop() const { return longest_stop_; }

private:
    void load_library();
    template <class Use>
    void with_all_stopped(bool is_attaching, Use use);

    pid_t pid_;
    std::string library_;
    Memory memory_;
    Threads threads_;
    std::uint64_t probe_address_ = 0;  // mapped for as long as the program runs
    Nanoseconds process_age_ = 0, longest_stop_ = 0;
};

}  // namespace assay::attach
