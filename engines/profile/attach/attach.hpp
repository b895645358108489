// The hooks in a process that runs already, and out of it again.
//
// Going in takes two steps. First one thread, which holds nothing, loads the library (dlopen),
// while all others run on: if it has to wait for a lock, that is given free. Then all are stopped
// for a moment, and the library, which allocates nothing now, makes its buffers and puts its hooks
// into the words through which the program's objects call one another. If no good moment comes, the
// process is left as it was. Going out is one more such moment.
//
// The library stays loaded: a thread may be inside a hook when they are taken out.
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
    // `settings` as heap/settings.hpp has them; `look_at` is given its threads while all of them
    // stand still. Throws Error, and then the process is as it was.
    Attachment(pid_t pid, const std::string& library, const std::string& settings,
               const std::function<void(std::span<const pid_t>)>& look_at);

    void leave();          // throws Error
    bool is_over() const;  // the process has ended, or has become another program
    Nanoseconds ran() const { return ran_; }  // since the process's start, when it was attached to
    Nanoseconds stood_still() const {
        return stood_still_;
    }  // the longest that all its threads were stopped

private:
    void load();
    template <class Use>
    void with_all_stopped(bool needs_empty_hooks, Use use);

    pid_t pid_;
    std::string library_;
    Memory memory_;
    Threads threads_;
    std::uint64_t here_ = 0;  // an address that is mapped as long as the program runs
    Nanoseconds ran_ = 0, stood_still_ = 0;
};

}  // namespace assay::attach
