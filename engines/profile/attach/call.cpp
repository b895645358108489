#include "profile/attach/call.hpp"

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
constexpr std::size_t room_bytes = 256 << 10,
                      text_bytes = 16 << 10;  // the text lies at the low end, far from the stack's
constexpr Nanoseconds usual = 2'000'000'000, limit = 60'000'000'000;  // of a call
constexpr std::size_t most_vector_bytes = 64 << 10;
constexpr auto nap = std::chrono::microseconds(20);
constexpr std::uint64_t all_but_ours = ~(std::uint64_t{1} << (SIGSEGV - 1));

bool get_registers(pid_t tid, user_regs_struct& into) {
    return ptrace(PTRACE_GETREGS, tid, nullptr, &into) == 0;
}
void set_registers(pid_t tid, user_regs_struct registers) {
    ptrace(PTRACE_SETREGS, tid, nullptr, &registers);
}

// System calls that the kernel ends with EINTR whenever a thread is stopped, and which have done
// nothing then (signal(7)).
constexpr std::array waits = {
    SYS_epoll_wait,      SYS_epoll_pwait,  SYS_epoll_pwait2,  SYS_semop,  SYS_semtimedop,
    SYS_rt_sigtimedwait, SYS_io_getevents, SYS_io_pgetevents, SYS_read,   SYS_readv,
    SYS_recvfrom,        SYS_recvmsg,      SYS_accept,        SYS_accept4};

std::uint64_t signals_in(const std::string& file, const char* field) {
    return std::strtoull(field_of(file, field).c_str(), nullptr, 16);
}

}  // namespace

struct Guest::State {
    user_regs_struct registers{};
    std::vector<char> vectors = std::vector<char>(most_vector_bytes);
    std::uint64_t blocked = 0;
};

Guest::Guest(pid_t tid, const Memory& memory, const Needed& needed, std::function<void()> held_up)
    : state_(std::make_unique<State>()),
      tid_(tid),
      memory_(memory),
      needed_(needed),
      held_up_(std::move(held_up)) {
    iovec vectors{state_->vectors.data(), state_->vectors.size()};
    if (!get_registers(tid_, state_->registers) ||
        ptrace(PTRACE_GETREGSET, tid_, NT_X86_XSTATE, &vectors) != 0 ||
        ptrace(PTRACE_GETSIGMASK, tid_, sizeof state_->blocked, &state_->blocked) != 0)
        throw Error(fmt::format("the registers of thread {} cannot be read: {}", tid_,
                                std::strerror(errno)));
    state_->vectors.resize(vectors.iov_len);
    std::uint64_t blocked = all_but_ours;
    ptrace(PTRACE_SETSIGMASK, tid_, sizeof blocked, &blocked);
    try {
        prepare();
    } catch (...) {
        restore();
        throw;
    }
}

void Guest::prepare() {
    errno_at_ = call(needed_.errno_location, {});
    errno_ = memory_.get<int>(errno_at_);
    const std::uint64_t room = call(
        needed_.mmap,
        {0, room_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, ~std::uint64_t{0}, 0});
    if (room == reinterpret_cast<std::uint64_t>(MAP_FAILED))
        throw Error("the process has no memory left for a call");
    room_ = room;
}

Guest::~Guest() {
    try {
        const std::uint64_t room = std::exchange(room_, 0);
        if (room != 0 && !is_lost_) call(needed_.munmap, {room, room_bytes});
    } catch (const Error&) {
        // A process that has ended has no memory to be given back.
    }
    restore();
}

void Guest::restore() noexcept {
    if (is_lost_) return;
    try {
        if (errno_at_ != 0) memory_.put(errno_at_, errno_);
    } catch (const Error&) {
        return;  // it has ended
    }
    iovec vectors{state_->vectors.data(), state_->vectors.size()};
    ptrace(PTRACE_SETREGSET, tid_, NT_X86_XSTATE, &vectors);
    ptrace(PTRACE_SETSIGMASK, tid_, sizeof state_->blocked, &state_->blocked);
    set_registers(
        tid_,
        state_->registers);  // with what the kernel needs to begin an interrupted system call again
}

std::uint64_t Guest::put(const std::string& text) {
    if (text.size() + 1 > text_bytes) throw Error("too long a name: " + text);
    memory_.write(room_, {text.c_str(), text.size() + 1});
    return room_;
}

std::uint64_t Guest::call(std::uint64_t function, std::initializer_list<std::uint64_t> arguments) {
    user_regs_struct registers = state_->registers;
    const std::uint64_t top = room_ != 0 ? room_ + room_bytes : registers.rsp - red_zone;
    registers.rsp = (top & ~std::uint64_t{15}) - 8;  // as it is after a call
    memory_.put(registers.rsp, std::uint64_t{0});
    unsigned long long* const places[] = {&registers.rdi, &registers.rsi, &registers.rdx,
                                          &registers.rcx, &registers.r8,  &registers.r9};
    std::size_t n = 0;
    for (const std::uint64_t argument : arguments) *places[n++] = argument;
    registers.rip = function;
    registers.rax = 0;
    registers.orig_rax =
        ~0ull;  // the interrupted system call is not begun again in the midst of this
    registers.eflags &= ~direction_flag;
    set_registers(tid_, registers);
    bool is_held_up = false;
    ptrace(PTRACE_CONT, tid_, nullptr, nullptr);
    for (const Nanoseconds start = now();;) {
        int status = 0;
        if (const pid_t told = waitpid(tid_, &status, __WALL | WNOHANG); told == 0) {
            const Nanoseconds took = now() - start;
            if (took > usual && !std::exchange(is_held_up, true)) held_up_();
            if (took > limit) {
                is_lost_ = true;
                throw Error(fmt::format("a call into the process has not returned in {} s",
                                        limit / 1'000'000'000));
            }
            std::this_thread::sleep_for(nap);
            continue;
        } else if (told != tid_ || !WIFSTOPPED(status)) {
            is_lost_ = true;
            throw Error("the process has ended meanwhile");
        }
        user_regs_struct after{};
        get_registers(tid_, after);
        if (status >> 16 == 0 && WSTOPSIG(status) == SIGSEGV) {
            if (after.rip == 0) return after.rax;
            throw Error(fmt::format("a call into the process has failed at {:x}", after.rip));
        }
        ptrace(PTRACE_CONT, tid_, nullptr,
               nullptr);  // stopped by somebody else: that holds when it is let go
    }
}

void begin_wait_again(pid_t pid, pid_t tid) {
    user_regs_struct registers{};
    if (!get_registers(tid, registers) || static_cast<std::int64_t>(registers.rax) != -EINTR)
        return;
    if (std::ranges::find(waits, static_cast<long>(registers.orig_rax)) == waits.end()) return;
    // A signal that is due has ended it, or might have.
    const std::string file = fmt::format("/proc/{}/task/{}/status", pid, tid);
    if (((signals_in(file, "SigPnd") | signals_in(file, "ShdPnd")) & ~signals_in(file, "SigBlk")) !=
        0)
        return;
    registers.rax = registers.orig_rax;
    registers.orig_rax = ~0ull;
    registers.rip -= 2;  // before the instruction `syscall`
    set_registers(tid, registers);
}

#else

struct Guest::State {};

Guest::Guest(pid_t tid, const Memory& memory, const Needed& needed, std::function<void()> held_up)
    : tid_(tid), memory_(memory), needed_(needed), held_up_(std::move(held_up)) {
    throw Error("functions of another process are called on x86-64 alone");
}
Guest::~Guest() = default;
std::uint64_t Guest::call(std::uint64_t, std::initializer_list<std::uint64_t>) { return 0; }
std::uint64_t Guest::put(const std::string&) { return 0; }
void begin_wait_again(pid_t, pid_t) {}

#endif

}  // namespace assay::attach
