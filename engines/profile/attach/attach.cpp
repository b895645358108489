// Attaches the hooks to a running process and detaches them: finds a safe moment and calls the hook
// library in one thread.
#include "profile/attach/attach.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/error.hpp"
#include "profile/attach/remote_call.hpp"
#include "profile/attach/status.hpp"
#include "profile/attach/thread_safety.hpp"
#include "profile/heap/attach_entry.hpp"

namespace assay::attach {
namespace {

constexpr Nanoseconds second = 1'000'000'000, stop_limit = second;
constexpr long default_attach_limit_s = 10;
constexpr std::chrono::milliseconds min_pause{1}, max_pause{20};

// Tests wait for longer, since on a busy machine threads stop late.
long attach_limit_s() {
    const char* text = std::getenv("ASSAY_ATTACH_LIMIT_S");
    const long limit = text != nullptr ? std::strtol(text, nullptr, 10) : 0;
    return limit > 0 ? limit : default_attach_limit_s;
}

const Mapping* find_mapping(const std::vector<Mapping>& files, const std::string& path) {
    const auto mapping = std::ranges::find(files, path, &Mapping::path);
    return mapping != files.end() ? &*mapping : nullptr;
}

// Throws Error if another recorder records the process: it holds a lock on the file of the
// process's buffers until it ends.
void check_not_recorded(pid_t pid) {
    for (const Mapping& mapping : mapped_files(pid)) {
        if (!mapping.path.ends_with(".arena")) continue;
        const int fd = open(mapping.path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        const bool is_unlocked = flock(fd, LOCK_EX | LOCK_NB) == 0;
        close(fd);
        if (!is_unlocked)
            throw Error(fmt::format("the memory of process {} is already being recorded", pid),
                        "end that recording first");
    }
}

Nanoseconds measure_age(pid_t pid) {
    std::ifstream stat(fmt::format("/proc/{}/stat", pid));
    std::string line;
    std::getline(stat, line);
    std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
    std::string field;
    for (int k = 3; k <= 22; ++k) fields >> field;
    timespec uptime{};
    clock_gettime(CLOCK_BOOTTIME, &uptime);
    const double started =
        std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
    return static_cast<Nanoseconds>((static_cast<double>(uptime.tv_sec) +
                                     static_cast<double>(uptime.tv_nsec) * 1e-9 - started) *
                                    1e9);
}

LibcFunctions find_libc_functions(const Process& process, pid_t pid) {
    const LibcFunctions libc{process.find_in_libc("mmap"), process.find_in_libc("munmap"),
                             process.find_in_libc("__errno_location")};
    if (libc.mmap == 0 || libc.munmap == 0 || libc.errno_location == 0)
        throw Error(
            fmt::format("the C library of process {} lacks mmap, munmap or __errno_location", pid),
            "check whether it was replaced after the process started");
    return libc;
}

[[noreturn]] void throw_attach_error(pid_t pid, heap::AttachResult answer) {
    switch (answer) {
        case heap::AttachResult::preloaded:
            throw Error(fmt::format("process {} was started by 'assay heap'", pid),
                        "such a process is recorded from its start: no need to attach");
        case heap::AttachResult::no_allocator:
            throw Error(fmt::format("process {} has no allocator that can be recorded", pid));
        default:
            throw Error(fmt::format("process {} cannot create its buffers in /dev/shm", pid),
                        "check that there is room and that its user can write there");
    }
}

enum class Outcome : std::uint8_t {
    done,
    not_safe,
    stopped  // not safe either, and the process stays there: a signal such as SIGSTOP has stopped
             // it
};

// Calls attempt() until it is done. Throws Error after attach_limit_s(), or if the process is
// stopped.
template <class Attempt>
void retry_until(pid_t pid, Attempt attempt) {
    std::chrono::milliseconds pause = min_pause;
    for (const Nanoseconds deadline = now() + attach_limit_s() * second;;) {
        const Outcome outcome = attempt();
        if (outcome == Outcome::done) return;
        if (status_field(fmt::format("/proc/{}/status", pid), "State").empty())
            throw Error(fmt::format("process {} has ended", pid));
        if (outcome == Outcome::stopped)
            throw Error(fmt::format("process {} is stopped inside the loader, the allocator or "
                                    "code without call-frame information",
                                    pid),
                        fmt::format("let it go on first, with kill -CONT {}", pid));
        if (now() > deadline)
            throw Error(
                fmt::format("found no moment within {} s to attach to process {}", attach_limit_s(),
                            pid),
                "try again: its threads were inside the loader, the allocator or code without "
                "call-frame information");
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, max_pause);
    }
}

}  // namespace

Attachment::Attachment(pid_t pid, const std::string& library, const std::string& settings,
                       const std::function<void(std::span<const pid_t>)>& on_stopped)
    : pid_((check_attachable(pid, library), pid)), library_(library), memory_(pid), threads_(pid) {
    check_not_recorded(pid);
    process_age_ = measure_age(pid);
    if (find_mapping(mapped_files(pid), library) == nullptr) load_library();
    with_all_stopped(true, [&](RemoteCall& remote, const Process& process) {
        const std::uint64_t function = process.find_in_hooks(heap::attach_function);
        if (function == 0)
            throw Error(fmt::format("process {} has another version of {} loaded", pid, library),
                        "attach with the Assay that loaded it");
        on_stopped(threads_.ids());
        const auto answer = static_cast<heap::AttachResult>(
            remote.call(function, {remote.write_text(settings), settings.size() + 1}) & 0xffffffff);
        if (answer != heap::AttachResult::attached) throw_attach_error(pid, answer);
    });
    const std::vector<Mapping> files = mapped_files(pid);
    if (const Mapping* hooks = find_mapping(files, library); hooks != nullptr)
        probe_address_ = hooks->begin;
}

// Calls dlopen in the first thread that holds no lock of the C library.
void Attachment::load_library() {
    const Process process(pid_, library_);
    const LibcFunctions libc = find_libc_functions(process, pid_);
    const std::uint64_t dlopen_address = process.find_in_libc("dlopen") != 0
                                             ? process.find_in_libc("dlopen")
                                             : process.find_in_libc("__libc_dlopen_mode");
    const std::uint64_t dlerror_address = process.find_in_libc("dlerror");
    if (dlopen_address == 0)
        throw Error(fmt::format("the C library of process {} has no dlopen", pid_));
    retry_until(pid_, [&] {
        bool was_stopped = true;
        for (const pid_t tid : Threads::list(pid_)) {
            bool is_done = false;
            const bool is_stopped = threads_.stop(tid, now() + stop_limit);
            const auto thread = std::ranges::find(threads_.stopped(), tid, &Thread::tid);
            was_stopped &= is_stopped && thread->was_stopped;
            if (is_stopped && thread->signal == 0 && process.assess_thread(tid).can_call) {
                RemoteCall remote(tid, memory_, libc, [] {});
                if (remote.call(dlopen_address,
                                {remote.write_text(library_), RTLD_NOW | RTLD_LOCAL}) == 0) {
                    const std::uint64_t message =
                        dlerror_address != 0 ? remote.call(dlerror_address, {}) : 0;
                    throw Error(
                        fmt::format("process {} cannot load the recorder's library: {}", pid_,
                                    message != 0 ? memory_.text(message, 500) : "unknown reason"));
                }
                is_done = true;
            }
            threads_.release_all();
            if (is_done) return Outcome::done;
        }
        return was_stopped ? Outcome::stopped : Outcome::not_safe;
    });
}

template <class Use>
void Attachment::with_all_stopped(bool is_attaching, Use use) {
    const Process process(pid_, library_);
    const LibcFunctions libc = find_libc_functions(process, pid_);
    retry_until(pid_, [&] {
        const Nanoseconds start = now();
        bool is_safe = threads_.stop_all(start + stop_limit);
        // A recording that ends waits for the process to go on: its hooks have to be taken out.
        const bool stays_there = is_attaching && is_safe &&
                                 std::ranges::all_of(threads_.stopped(), &Thread::was_stopped);
        pid_t calling_tid = 0;
        for (const Thread& thread : threads_.stopped()) {
            const ThreadSafety safety =
                is_safe ? process.assess_thread(thread.tid) : ThreadSafety{};
            is_safe &= safety.can_patch && !(is_attaching && safety.is_in_hooks);
            if (!is_safe) break;
            if (calling_tid == 0 && thread.signal == 0 && safety.can_call) calling_tid = thread.tid;
        }
        is_safe &= calling_tid != 0;
        if (is_safe) {
            RemoteCall remote(calling_tid, memory_, libc,
                              [&] { threads_.release_all_but(calling_tid); });
            use(remote, process);
        }
        threads_.release_all();
        longest_stop_ = std::max(longest_stop_, now() - start);
        return is_safe ? Outcome::done : stays_there ? Outcome::stopped : Outcome::not_safe;
    });
}

void Attachment::detach() {
    with_all_stopped(false, [&](RemoteCall& remote, const Process& process) {
        remote.call(process.find_in_hooks(heap::detach_function), {});
    });
}

bool Attachment::is_over() const { return !memory_.is_mapped(probe_address_); }

}  // namespace assay::attach
