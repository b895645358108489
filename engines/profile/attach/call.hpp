// A function of another process, called in one of its threads.
//
// The thread is stopped; it gets the call's registers, runs until the call returns to address 0,
// and has its own back: all of them, the signals that it blocks and its errno. Meanwhile all
// signals wait. The call runs on a stack of its own, since the thread's may be small; of that one
// only the memory below its red zone is used, to ask for the other.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>

#include "core/clock.hpp"
#include "profile/attach/memory.hpp"

namespace assay::attach {

// Functions of the process's C library.
struct Needed {
    std::uint64_t mmap = 0, munmap = 0, errno_location = 0;
};

class Guest {
public:
    // `held_up` is called once when a call takes longer than that should.
    Guest(pid_t tid, const Memory& memory, const Needed& needed,
          std::function<void()> held_up);  // throws Error
    ~Guest();
    Guest(const Guest&) = delete;
    Guest& operator=(const Guest&) = delete;

    // Throws Error when the process ends in it, or the call does not.
    std::uint64_t call(std::uint64_t function, std::initializer_list<std::uint64_t> arguments);
    // Where it has been put in the process, a zero after it; one at a time.
    std::uint64_t put(const std::string& text);

private:
    void prepare();
    void restore() noexcept;

    struct State;
    std::unique_ptr<State> state_;
    pid_t tid_;
    const Memory& memory_;
    Needed needed_;
    std::function<void()> held_up_;
    std::uint64_t room_ = 0, errno_at_ = 0;
    int errno_ = 0;
    bool is_lost_ = false;  // the thread is no more, or still in a call
};

// A stopped thread whose system call was ended by nothing but the stop itself is to wait on when it
// is let go.
void begin_wait_again(pid_t pid, pid_t tid);

}  // namespace assay::attach
