#include "profile/attach/attach.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/error.hpp"
#include "profile/attach/call.hpp"
#include "profile/attach/standing.hpp"
#include "profile/attach/status.hpp"
#include "profile/heap/attach_entry.hpp"

namespace assay::attach {
namespace {

constexpr Nanoseconds patience = 10'000'000'000, stop_limit = 1'000'000'000;
constexpr std::chrono::milliseconds first_pause{1}, longest_pause{20};

const Mapping* mapping_of(const std::vector<Mapping>& files, const std::string& path) {
    const auto found = std::ranges::find(files, path, &Mapping::path);
    return found != files.end() ? &*found : nullptr;
}

// Its recorder holds a lock on the file of its buffers, however it ends.
void check_free(pid_t pid) {
    for (const Mapping& one : files_mapped_in(pid)) {
        if (!one.path.ends_with(".arena")) continue;
        const int fd = open(one.path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        const bool is_free = flock(fd, LOCK_EX | LOCK_NB) == 0;
        close(fd);
        if (!is_free)
            throw Error(fmt::format("the memory of process {} is being recorded already", pid),
                        "end that recording first");
    }
}

Nanoseconds age_of(pid_t pid) {
    std::ifstream stat(fmt::format("/proc/{}/stat", pid));
    std::string line;
    std::getline(stat, line);
    std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
    std::string field;
    for (int k = 3; k <= 22; ++k) fields >> field;
    timespec up{};
    clock_gettime(CLOCK_BOOTTIME, &up);
    const double started =
        std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
    return static_cast<Nanoseconds>(
        (static_cast<double>(up.tv_sec) + static_cast<double>(up.tv_nsec) * 1e-9 - started) * 1e9);
}

Needed needed_of(const Process& process, pid_t pid) {
    const Needed needed{process.in_libc("mmap"), process.in_libc("munmap"),
                        process.in_libc("__errno_location")};
    if (needed.mmap == 0 || needed.munmap == 0 || needed.errno_location == 0)
        throw Error(fmt::format("the C library of process {} is not understood", pid),
                    "has it been replaced since the process was started?");
    return needed;
}

[[noreturn]] void throw_refused(pid_t pid, heap::AttachResult answer) {
    switch (answer) {
        case heap::AttachResult::preloaded:
            throw Error(fmt::format("process {} was started by 'assay heap'", pid),
                        "it cannot be attached to as well");
        case heap::AttachResult::no_allocator:
            throw Error(fmt::format("process {} has no allocator that could be recorded", pid));
        default:
            throw Error(fmt::format("process {} cannot make its buffers in /dev/shm", pid),
                        "is there room, and may its user write there?");
    }
}

// try_once() until it says true. Throws Error after the time that a good moment may take.
template <class Try>
void until_good_moment(pid_t pid, Try try_once) {
    std::chrono::milliseconds pause = first_pause;
    for (const Nanoseconds end = now() + patience; !try_once();) {
        if (field_of(fmt::format("/proc/{}/status", pid), "State").empty())
            throw Error(fmt::format("process {} has ended", pid));
        if (now() > end)
            throw Error(
                fmt::format("no moment was found in {} s at which process {} could be attached to",
                            patience / 1'000'000'000, pid),
                "its threads are inside the loader, the allocator or code without call-frame "
                "information: try again");
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, longest_pause);
    }
}

}  // namespace

Attachment::Attachment(pid_t pid, const std::string& library, const std::string& settings,
                       const std::function<void(std::span<const pid_t>)>& look_at)
    : pid_((check(pid, library), pid)), library_(library), memory_(pid), threads_(pid) {
    check_free(pid);
    ran_ = age_of(pid);
    if (mapping_of(files_mapped_in(pid), library) == nullptr) load();
    with_all_stopped(true, [&](Guest& guest, const Process& process) {
        const std::uint64_t function = process.in_hooks(heap::attach_function);
        if (function == 0)
            throw Error(fmt::format("process {} has another version of {} loaded", pid, library),
                        "it can be attached to by that one alone");
        look_at(threads_.ids());
        const auto answer = static_cast<heap::AttachResult>(
            guest.call(function, {guest.put(settings), settings.size() + 1}) & 0xffffffff);
        if (answer != heap::AttachResult::attached) throw_refused(pid, answer);
    });
    const std::vector<Mapping> files = files_mapped_in(pid);
    if (const Mapping* hooks = mapping_of(files, library); hooks != nullptr) here_ = hooks->begin;
}

// By a thread that is not inside of anything that the loader may need.
void Attachment::load() {
    const Process process(pid_, library_);
    const Needed needed = needed_of(process, pid_);
    const std::uint64_t open = process.in_libc("dlopen") != 0
                                   ? process.in_libc("dlopen")
                                   : process.in_libc("__libc_dlopen_mode");
    const std::uint64_t why = process.in_libc("dlerror");
    if (open == 0) throw Error(fmt::format("the C library of process {} can load nothing", pid_));
    until_good_moment(pid_, [&] {
        for (const pid_t tid : Threads::of(pid_)) {
            bool is_done = false;
            if (threads_.stop(tid, now() + stop_limit) && threads_.stopped().front().signal == 0 &&
                process.standing(tid).may_call) {
                Guest guest(tid, memory_, needed, [] {});
                if (guest.call(open, {guest.put(library_), RTLD_NOW | RTLD_LOCAL}) == 0) {
                    const std::uint64_t said = why != 0 ? guest.call(why, {}) : 0;
                    throw Error(
                        fmt::format("process {} cannot load the recorder's library: {}", pid_,
                                    said != 0 ? memory_.text(said, 500) : "it does not say why"));
                }
                is_done = true;
            }
            threads_.let_go();
            if (is_done) return true;
        }
        return false;
    });
}

template <class Use>
void Attachment::with_all_stopped(bool needs_empty_hooks, Use use) {
    const Process process(pid_, library_);
    const Needed needed = needed_of(process, pid_);
    until_good_moment(pid_, [&] {
        const Nanoseconds start = now();
        bool is_good = threads_.stop_all(start + stop_limit);
        pid_t guest_tid = 0;
        for (const Thread& one : threads_.stopped()) {
            const Standing standing = is_good ? process.standing(one.tid) : Standing{};
            is_good &= standing.lets_be_changed && !(needs_empty_hooks && standing.is_in_hooks);
            if (!is_good) break;
            if (guest_tid == 0 && one.signal == 0 && standing.may_call) guest_tid = one.tid;
        }
        is_good &= guest_tid != 0;
        if (is_good) {
            Guest guest(guest_tid, memory_, needed, [&] { threads_.let_go_but(guest_tid); });
            use(guest, process);
        }
        threads_.let_go();
        stood_still_ = std::max(stood_still_, now() - start);
        return is_good;
    });
}

void Attachment::leave() {
    with_all_stopped(false, [&](Guest& guest, const Process& process) {
        guest.call(process.in_hooks(heap::detach_function), {});
    });
}

bool Attachment::is_over() const { return !memory_.is_there(here_); }

}  // namespace assay::attach
