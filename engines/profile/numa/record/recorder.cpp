#include "profile/numa/record/recorder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <list>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "profile/numa/record/process.hpp"
#include "profile/numa/record/ring_folder.hpp"

namespace assay::numa {
namespace {

namespace fs = std::filesystem;

// Between two looks at the rings, of which a full one wakes the recorder at once: shortly after
// something has happened, and otherwise.
constexpr int soon_ms = 4, later_ms = 20;
constexpr Nanoseconds hold_back_ns = 1'000'000;  // for events of other processors
constexpr Nanoseconds look_interval_ns = 50'000'000, sweep_interval_ns = 250'000'000;
constexpr Nanoseconds find_interval_ns = 250'000'000;     // for rings of programs that cannot wake
constexpr Nanoseconds children_limit_ns = 1'000'000'000;  // for those that outlive the program
// Sweeps take 0.5 % of the time at most, looks at threads as much; both become rarer in time, so
// that a long run's are as many.
constexpr Nanoseconds work_share = 200, age_share = 100;

volatile sig_atomic_t received_signal = 0;
void on_signal(int number) { received_signal = number; }

void set_environment(const Settings& settings, const std::string& rings, std::size_t nodes) {
    const char* preloaded = std::getenv("LD_PRELOAD");
    const bool has_others = preloaded != nullptr && *preloaded != 0;
    setenv("LD_PRELOAD",
           (has_others ? settings.library + ":" + preloaded : settings.library).c_str(), 1);
    setenv(rings_variable, rings.c_str(), 1);
    setenv(at_least_variable, std::to_string(settings.at_least).c_str(), 1);
    if (settings.emulated > 0) setenv(nodes_variable, std::to_string(settings.emulated).c_str(), 1);
    if (settings.plan.empty()) return;
    setenv(plan_variable, settings.plan.c_str(), 1);
    setenv("ASSAY_NUMA_NODES", std::to_string(nodes).c_str(), 1);
}

class Recorder {
public:
    Recorder(const Settings& settings, const RingFolder& folder)
        : settings_(settings), folder_(folder), topology_(read_topology(settings.emulated)) {}

    pid_t launch();
    // Until `is_over` says that the program has ended, and a moment longer for its children.
    template <class IsOver>
    void run(IsOver is_over);
    void write();

private:
    void take_events(bool all);
    void watch(pid_t program);
    Sampling sampling() const;
    // When to do again what began at `begin` and is done at least each `interval`.
    Nanoseconds next(Nanoseconds begin, Nanoseconds interval) const;
    void take(const KernelEvent& event);
    void find_rings();
    void look(Nanoseconds time);
    Process* current(std::uint32_t pid);
    Process& add(std::uint32_t pid, std::uint32_t parent, std::uint64_t ns);
    bool some_live() const;

    const Settings& settings_;
    const RingFolder& folder_;
    Topology topology_;
    KernelEvents kernel_;
    bool sees_faults_ = false;
    std::vector<KernelEvent> kernel_events_;
    struct PendingEvent {  // an event of a ring, not handled yet
        std::uint64_t ns, address, bytes, mask, more_mask;
        EventKind kind;
        std::uint32_t tid, stack;
        std::int32_t mode;
        RingReader* ring;
    };
    std::vector<PendingEvent> pending_events_;
    std::vector<std::shared_ptr<RingReader>> rings_;
    std::set<std::string> known_rings_;
    std::list<Process> processes_;
    std::unordered_map<std::uint32_t, Process*> by_pid_;
    std::unordered_map<RingReader*, Process*> by_ring_;
    Nanoseconds started_ = now(), next_look_ = 0, next_sweep_ = 0, next_find_ = 0;
    int program_end_ = -1;   // a pidfd: readable once the program has ended
    std::size_t taken_ = 0;  // events of the last look
};

pid_t Recorder::launch() {
    int exec_error[2], start[2];
    if (pipe2(exec_error, O_CLOEXEC) != 0 || pipe2(start, O_CLOEXEC) != 0)
        throw Error(std::string("no pipe: ") + std::strerror(errno));
    const pid_t pid = fork();
    if (pid < 0) throw Error(std::string("cannot start a process: ") + std::strerror(errno));
    if (pid == 0) {
        set_environment(settings_, folder_.path(), topology_.nodes.size());
        for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_DFL);
        std::vector<char*> argv;
        argv.reserve(settings_.program.size() + 1);
        for (const std::string& word : settings_.program)
            argv.push_back(const_cast<char*>(word.c_str()));
        argv.push_back(nullptr);
        close(start[1]);
        char none;
        [[maybe_unused]] const ssize_t n = read(start[0], &none, 1);  // until the parent closes it
        execvp(argv[0], argv.data());
        const int error = errno;
        [[maybe_unused]] const ssize_t written = ::write(exec_error[1], &error, sizeof error);
        _exit(127);
    }
    try {
        watch(pid);
    } catch (const Error&) {
        kill(pid, SIGKILL);  // it waits before its exec
        waitpid(pid, nullptr, 0);
        throw;
    }
    add(static_cast<std::uint32_t>(pid), static_cast<std::uint32_t>(getpid()),
        static_cast<std::uint64_t>(now()));
    program_end_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    close(start[0]);
    close(start[1]);
    close(exec_error[1]);
    int error = 0;
    const bool failed = read(exec_error[0], &error, sizeof error) == sizeof error;
    close(exec_error[0]);
    if (failed) {
        waitpid(pid, nullptr, 0);
        throw Error(fmt::format("cannot run {}: {}", settings_.program[0], std::strerror(error)),
                    "check that it is on PATH and executable");
    }
    return pid;
}

void Recorder::watch(pid_t program) {
    sees_faults_ = settings_.watches_faults && kernel_.watch(program);
    if (settings_.events.empty()) return;
    if (!sees_faults_) throw Error("accesses cannot be sampled: " + kernel_.why());
    kernel_.sample(program, settings_.events);
}

Process& Recorder::add(std::uint32_t pid, std::uint32_t parent, std::uint64_t ns) {
    processes_.emplace_back(pid, parent, ns, topology_, sees_faults_);
    by_pid_[pid] = &processes_.back();
    return processes_.back();
}

Process* Recorder::current(std::uint32_t pid) {
    const auto known = by_pid_.find(pid);
    return known != by_pid_.end() ? known->second : nullptr;
}

void Recorder::take(const KernelEvent& event) {
    Process* process = current(event.pid);
    switch (event.kind) {
        case KernelEvent::Kind::start:
            if (event.parent == event.pid || process != nullptr) return;  // a thread
            process = &add(event.pid, event.parent, event.ns);
            if (const Process* parent = current(event.parent)) process->inherit(*parent);
            return;
        case KernelEvent::Kind::exec:
            if (process != nullptr) {
                process->note_replaced();
                process->note_exit(event.ns);
            }
            add(event.pid, process != nullptr ? process->parent() : 0, event.ns);
            return;
        case KernelEvent::Kind::exit:
            if (process != nullptr && event.tid == event.pid) process->note_exit(event.ns);
            return;
        case KernelEvent::Kind::access:
            if (process == nullptr) return;  // of another program: the whole machine is sampled
            break;
        default: break;
    }
    if (process == nullptr) process = &add(event.pid, 0, event.ns);
    process->take(event);
}

void Recorder::find_rings() {
    if (!folder_.was_woken() && folder_.pipe() >= 0 && now() < next_find_) return;
    next_find_ = now() + find_interval_ns;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder_.path(), error)) {
        const std::string name = entry.path().filename();
        if (!name.ends_with(".ring") || known_rings_.contains(name)) continue;
        try {
            rings_.push_back(std::make_shared<RingReader>(entry.path()));
            known_rings_.insert(name);
        } catch (const Error&) {
            // It is being made: the next look finds it.
        }
    }
}

// Events of all processors and rings in the order of time. The newest wait, since an older one may
// still be on its way, unless `all` are wanted.
void Recorder::take_events(bool all) {
    const auto limit = static_cast<std::uint64_t>(now() - (all ? 0 : hold_back_ns));
    kernel_.drain([&](KernelEvent&& event) { kernel_events_.push_back(std::move(event)); });
    find_rings();
    for (const auto& ring : rings_)
        ring->drain([&](const Event& event) {
            pending_events_.push_back({event.ns, event.address, event.bytes, event.mask,
                                       event.more_mask, event.kind, event.tid, event.stack,
                                       event.mode, ring.get()});
        });
    std::ranges::stable_sort(kernel_events_, {}, &KernelEvent::ns);
    std::ranges::stable_sort(pending_events_, {}, &PendingEvent::ns);
    std::size_t kernel = 0, told = 0;
    const auto take_pending = [&](const PendingEvent& given) {
        const auto known = by_ring_.find(given.ring);
        Process* process = known != by_ring_.end() ? known->second : nullptr;
        if (process == nullptr) {
            process = current(given.ring->pid());
            if (process == nullptr) {
                process = &add(given.ring->pid(), given.ring->parent(), given.ns);
                if (const Process* parent = current(given.ring->parent()))
                    process->inherit(*parent);
            } else if (!sees_faults_ && process->has_ring()) {
                process->note_replaced();
                process = &add(given.ring->pid(), given.ring->parent(), given.ns);
            }
            by_ring_[given.ring] = process;
            for (const auto& ring : rings_)
                if (ring.get() == given.ring) process->set_ring(ring);
        }
        Event event{};
        event.ns = given.ns;
        event.kind = given.kind;
        event.tid = given.tid;
        event.address = given.address;
        event.bytes = given.bytes;
        event.mask = given.mask;
        event.more_mask = given.more_mask;
        event.stack = given.stack;
        event.mode = given.mode;
        process->take(event);
    };
    while (true) {
        const bool has_kernel =
            kernel < kernel_events_.size() && kernel_events_[kernel].ns <= limit;
        const bool has_told = told < pending_events_.size() && pending_events_[told].ns <= limit;
        if (!has_kernel && !has_told) break;
        if (has_kernel && (!has_told || kernel_events_[kernel].ns <= pending_events_[told].ns))
            take(kernel_events_[kernel++]);
        else take_pending(pending_events_[told++]);
    }
    taken_ = kernel + told;
    kernel_events_.erase(kernel_events_.begin(),
                         kernel_events_.begin() + static_cast<std::ptrdiff_t>(kernel));
    pending_events_.erase(pending_events_.begin(),
                          pending_events_.begin() + static_cast<std::ptrdiff_t>(told));
    for (const auto& [pid, process] : by_pid_) {
        process->locate_touched();
        process->locate_accessed();
    }
}

void Recorder::look(Nanoseconds time) {
    const auto ns = static_cast<std::uint64_t>(time);
    const bool sweeps = time >= next_sweep_;
    if (std::ranges::any_of(by_pid_, [](const auto& e) { return e.second->asks_for_last_look(); }))
        take_events(true);
    const bool looks = time >= next_look_;
    for (const auto& [pid, process] : by_pid_) {
        const bool is_last = process->asks_for_last_look();
        if (is_last || looks) process->look_at_threads(ns);
    }
    if (looks) next_look_ = next(time, look_interval_ns);
    const Nanoseconds begin = now();
    for (const auto& [pid, process] : by_pid_) {
        const bool is_last = process->asks_for_last_look();
        if (sweeps || is_last) process->sweep(ns);
        if (is_last) process->answer_last_look();
    }
    if (sweeps) next_sweep_ = next(begin, sweep_interval_ns);
}

Nanoseconds Recorder::next(Nanoseconds begin, Nanoseconds interval) const {
    const Nanoseconds end = now();
    return end + std::max({interval, (end - begin) * work_share, (end - started_) / age_share});
}

bool Recorder::some_live() const {
    return std::ranges::any_of(by_pid_, [](const auto& entry) {
        return fs::exists(fmt::format("/proc/{}", entry.first));
    });
}

template <class IsOver>
void Recorder::run(IsOver is_over) {
    Nanoseconds ended = 0;
    while (ended == 0 || (some_live() && now() - ended < children_limit_ns)) {
        kernel_.wait(taken_ > 0 ? soon_ms : later_ms, {folder_.pipe(), program_end_});
        take_events(false);
        look(now());
        if (ended == 0 && is_over()) ended = now();
    }
    next_find_ = 0;
    take_events(true);
    for (const auto& ring : rings_) ring->leave();
    if (program_end_ >= 0) close(program_end_);
}

void Recorder::write() {
    std::string why;
    if (!sees_faults_)
        why = settings_.watches_faults ? kernel_.why() : "page faults were not watched";
    else if (!kernel_.sees_system_calls())
        why =
            "first touches inside system calls are not seen; fix: sysctl "
            "kernel.perf_event_paranoid=1";
    int serial = 0;
    for (const Process& process : processes_)
        if (!process.is_blank())
            process.write(settings_.directory, serial++, why, kernel_.losses().lost, sampling());
}

Sampling Recorder::sampling() const {
    Sampling sampling;
    for (const MemoryEvent& event : settings_.events) {
        sampling.events += (sampling.events.empty() ? "" : ", ") + event.name;
        sampling.period = event.period;
    }
    sampling.throttled = kernel_.losses().throttled;
    return sampling;
}

}  // namespace

int record(const Settings& settings) {
    const RingFolder rings(settings.directory);
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGTERM, on_signal);
    std::signal(SIGHUP, on_signal);
    Recorder recorder(settings, rings);
    const pid_t program = recorder.launch();
    int status = 0;
    recorder.run([&] {
        if (const int number = std::exchange(received_signal, 0); number != 0)
            kill(program, number);
        return waitpid(program, &status, WNOHANG) == program;
    });
    recorder.write();
    return status;
}

}  // namespace assay::numa
