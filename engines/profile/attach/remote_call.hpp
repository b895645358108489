// Calls functions of another process in one of its stopped threads.
//
// The thread gets the registers of the call and runs until the call returns to address 0. Then its
// registers, its signal mask and its errno are restored. All signals but SIGSEGV are blocked
// during the call. Calls run on a separately mapped stack, since the thread's own may be small.
// Only the calls that map this stack use the thread's stack, below its red zone.
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

// Addresses of functions in the process's C library.
struct LibcFunctions {
    std::uint64_t mmap = 0, munmap = 0, errno_location = 0;
};

class RemoteCall {
public:
    // Prepares a stopped thread for calls. `on_delay` is invoked once if a call takes more than
    // two seconds. Throws Error.
    RemoteCall(pid_t tid, const Memory& memory, const LibcFunctions& libc,
               std::function<void()> on_delay);
    ~RemoteCall();
    RemoteCall(const RemoteCall&) = delete;
    RemoteCall& operator=(const RemoteCall&) = delete;

    // Returns the function's result, for up to six arguments. Throws Error when the process ends,
    // or the call does not return within a minute.
    std::uint64_t call(std::uint64_t function, std::initializer_list<std::uint64_t> arguments);
    // Copies a zero-terminated text into the process, over the previous one; returns its address.
    std::uint64_t write_text(const std::string& text);

private:
    void prepare();
    void restore() noexcept;

    struct State;
    std::unique_ptr<State> state_;
    pid_t tid_;
    const Memory& memory_;
    LibcFunctions libc_;
    std::function<void()> on_delay_;
    std::uint64_t buffer_ = 0, errno_address_ = 0;
    int errno_ = 0;
    bool is_lost_ = false;  // the thread has ended, or is still in a call
};

// Makes a stopped thread restart a system call that ended with EINTR only because of the stop.
void restart_interrupted_wait(pid_t pid, pid_t tid);

}  // namespace assay::attach
