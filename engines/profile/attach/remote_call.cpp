// Calls functions in a stopped thread of another process with ptrace(2), on x86-64.
#include "profile/attach/remote_call.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "profile/attach/status.hpp"

namespace assay::attach {

#if defined(__x86_64__)

namespace {

constexpr std::uint64_t red_zone = 128, direction_flag = 0x400;
// The buffer holds the text at its low end; the stack grows down from its high end.
constexpr std::size_t buffer_bytes = 256 << 10, text_bytes = 16 << 10;
constexpr Nanoseconds delay_limit = 2'000'000'000, call_limit = 60'000'000'000;
constexpr std::size_t max_vector_bytes = 64 << 10;
constexpr auto poll_pause = std::chrono::microseconds(20);
constexpr std::uint64_t all_but_sigsegv = ~(std::uint64_t{1} << (SIGSEGV - 1));

bool get_registers(pid_t tid, user_regs_struct& registers) {
    return ptrace(PTRACE_GETREGS, tid, nullptr, &registers) == 0;
}
void set_registers(pid_t tid, user_regs_struct registers) {
    ptrace(PTRACE_SETREGS, tid, nullptr, &registers);
}

// System calls that the kernel ends with EINTR whenever a thread is stopped, without any effect
// (signal(7)).
constexpr std::array interruptible_waits = {
    SYS_epoll_wait,      SYS_epoll_pwait,  __NR_epoll_pwait2, SYS_semop,  SYS_semtimedop,
    SYS_rt_sigtimedwait, SYS_io_getevents, SYS_io_pgetevents, SYS_read,   SYS_readv,
    SYS_recvfrom,        SYS_recvmsg,      SYS_accept,        SYS_accept4};

std::uint64_t read_signal_mask(const std::string& file, const char* field) {
    return std::strtoull(status_field(file, field).c_str(), nullptr, 16);
}

}  // namespace

struct RemoteCall::State {
    user_regs_struct registers{};
    std::vector<char> vectors = std::vector<char>(max_vector_bytes);
    std::uint64_t blocked_signals = 0;
};

RemoteCall::RemoteCall(pid_t tid, const Memory& memory, const LibcFunctions& libc,
                       std::function<void()> on_delay)
    : state_(std::make_unique<State>()),
      tid_(tid),
      memory_(memory),
      libc_(libc),
      on_delay_(std::move(on_delay)) {
    iovec vectors{state_->vectors.data(), state_->vectors.size()};
    if (!get_registers(tid_, state_->registers) ||
        ptrace(PTRACE_GETREGSET, tid_, NT_X86_XSTATE, &vectors) != 0 ||
        ptrace(PTRACE_GETSIGMASK, tid_, sizeof state_->blocked_signals, &state_->blocked_signals) !=
            0)
        throw Error(fmt::format("the registers of thread {} cannot be read: {}", tid_,
                                std::strerror(errno)));
    state_->vectors.resize(vectors.iov_len);
    std::uint64_t blocked_signals = all_but_sigsegv;
    ptrace(PTRACE_SETSIGMASK, tid_, sizeof blocked_signals, &blocked_signals);
    try {
        prepare();
    } catch (...) {
        restore();
        throw;
    }
}

void RemoteCall::prepare() {
    errno_address_ = call(libc_.errno_location, {});
    errno_ = memory_.get<int>(errno_address_);
    const std::uint64_t buffer =
        call(libc_.mmap, {0, buffer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                          ~std::uint64_t{0}, 0});
    if (buffer == reinterpret_cast<std::uint64_t>(MAP_FAILED))
        throw Error("the process cannot map memory for a call");
    buffer_ = buffer;
}

RemoteCall::~RemoteCall() {
    try {
        const std::uint64_t buffer = std::exchange(buffer_, 0);
        if (buffer != 0 && !is_lost_) call(libc_.munmap, {buffer, buffer_bytes});
    } catch (const Error&) {
        // The process has ended, and its memory with it.
    }
    restore();
}

void RemoteCall::restore() noexcept {
    if (is_lost_) return;
    try {
        if (errno_address_ != 0) memory_.put(errno_address_, errno_);
    } catch (const Error&) {
        return;  // the process has ended
    }
    iovec vectors{state_->vectors.data(), state_->vectors.size()};
    ptrace(PTRACE_SETREGSET, tid_, NT_X86_XSTATE, &vectors);
    ptrace(PTRACE_SETSIGMASK, tid_, sizeof state_->blocked_signals, &state_->blocked_signals);
    // Includes what the kernel needs to restart an interrupted system call.
    set_registers(tid_, state_->registers);
}

std::uint64_t RemoteCall::write_text(const std::string& text) {
    if (text.size() + 1 > text_bytes)
        throw Error("text is too long to pass to the process: " + text);
    memory_.write(buffer_, {text.c_str(), text.size() + 1});
    return buffer_;
}

std::uint64_t RemoteCall::call(std::uint64_t function,
                               std::initializer_list<std::uint64_t> arguments) {
    user_regs_struct registers = state_->registers;
    const std::uint64_t top = buffer_ != 0 ? buffer_ + buffer_bytes : registers.rsp - red_zone;
    registers.rsp = (top & ~std::uint64_t{15}) - 8;  // the alignment at a function's entry
    memory_.put(registers.rsp, std::uint64_t{0});
    unsigned long long* const argument_registers[] = {&registers.rdi, &registers.rsi,
                                                      &registers.rdx, &registers.rcx,
                                                      &registers.r8,  &registers.r9};
    std::size_t n = 0;
    for (const std::uint64_t argument : arguments) *argument_registers[n++] = argument;
    registers.rip = function;
    registers.rax = 0;
    // Prevents the kernel from restarting the interrupted system call now.
    registers.orig_rax = ~0ull;
    registers.eflags &= ~direction_flag;
    set_registers(tid_, registers);
    bool is_delayed = false;
    ptrace(PTRACE_CONT, tid_, nullptr, nullptr);
    for (const Nanoseconds start = now();;) {
        int status = 0;
        if (const pid_t waited_tid = waitpid(tid_, &status, __WALL | WNOHANG); waited_tid == 0) {
            const Nanoseconds duration = now() - start;
            if (duration > delay_limit && !std::exchange(is_delayed, true)) on_delay_();
            if (duration > call_limit) {
                is_lost_ = true;
                throw Error(fmt::format("a call into the process has not returned within {} s",
                                        call_limit / 1'000'000'000));
            }
            std::this_thread::sleep_for(poll_pause);
            continue;
        } else if (waited_tid != tid_ || !WIFSTOPPED(status)) {
            is_lost_ = true;
            throw Error("the process ended during a call into it");
        }
        user_regs_struct result_registers{};
        get_registers(tid_, result_registers);
        if (status >> 16 == 0 && WSTOPSIG(status) == SIGSEGV) {
            if (result_registers.rip == 0) return result_registers.rax;
            throw Error(fmt::format("a call into the process crashed at address {:x}",
                                    result_registers.rip));
        }
        // Another stop. It takes effect on release.
        ptrace(PTRACE_CONT, tid_, nullptr, nullptr);
    }
}

void restart_interrupted_wait(pid_t pid, pid_t tid) {
    user_regs_struct registers{};
    if (!get_registers(tid, registers) || static_cast<std::int64_t>(registers.rax) != -EINTR)
        return;
    if (std::ranges::find(interruptible_waits, static_cast<long>(registers.orig_rax)) ==
        interruptible_waits.end())
        return;
    // A pending signal may have ended the call.
    const std::string file = fmt::format("/proc/{}/task/{}/status", pid, tid);
    if (((read_signal_mask(file, "SigPnd") | read_signal_mask(file, "ShdPnd")) &
         ~read_signal_mask(file, "SigBlk")) != 0)
        return;
    registers.rax = registers.orig_rax;
    registers.orig_rax = ~0ull;
    registers.rip -= 2;  // back to the 2-byte syscall instruction
    set_registers(tid, registers);
}

#else

struct RemoteCall::State {};

RemoteCall::RemoteCall(pid_t tid, const Memory& memory, const LibcFunctions& libc,
                       std::function<void()> on_delay)
    : tid_(tid), memory_(memory), libc_(libc), on_delay_(std::move(on_delay)) {
    throw Error("calling functions of another process is supported on x86-64 only");
}
RemoteCall::~RemoteCall() = default;
std::uint64_t RemoteCall::call(std::uint64_t, std::initializer_list<std::uint64_t>) { return 0; }
std::uint64_t RemoteCall::write_text(const std::string&) { return 0; }
void restart_interrupted_wait(pid_t, pid_t) {}

#endif

}  // namespace assay::attach
