// Runs a program under observation: merges kernel events and ring events in time order, passes them
// to the processes, and scans resident pages at intervals.
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
#include <fstream>
#include <list>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/text.hpp"
#include "preload/libraries.hpp"
#include "preload/obstacle.hpp"
#include "profile/forwarded_signals.hpp"
#include "profile/numa/hooks/ring.hpp"
#include "profile/numa/record/process.hpp"
#include "profile/numa/record/ring_folder.hpp"

namespace assay::numa {
namespace {

using profile::ForwardedSignals;

namespace fs = std::filesystem;

// Milliseconds between two polls of the rings: after a poll that found events, and otherwise. A
// full ring wakes the recorder at once.
constexpr int busy_poll_ms = 4, idle_poll_ms = 20;
// How long events wait for earlier ones of other processors.
constexpr Nanoseconds hold_back_ns = 1'000'000;
constexpr Nanoseconds thread_interval_ns = 50'000'000, scan_interval_ns = 250'000'000;
// Between searches for rings of programs that cannot wake the recorder.
constexpr Nanoseconds ring_interval_ns = 250'000'000;
// Limit of the wait for children that outlive the program.
constexpr Nanoseconds children_limit_ns = 1'000'000'000;
// A scan of pages or threads that takes t is followed by a pause of at least 200 t, so that scans
// cost at most 0.5 % of the time. The pause is also at least 1 % of the run time so far, which
// limits the number of scans in a long run.
constexpr Nanoseconds min_pause_factor = 200, age_divisor = 100;

void set_environment(const Settings& settings, const std::string& rings, std::size_t nodes) {
    const bool loads =
        preload::obstacle_of_command(settings.program[0].c_str()) == preload::PreloadObstacle::none;
    if (loads)
        setenv("LD_PRELOAD",
               preload::with_library(settings.library, std::getenv("LD_PRELOAD")).c_str(), 1);
    setenv(rings_variable, rings.c_str(), 1);
    setenv(min_object_variable, std::to_string(settings.min_object_bytes).c_str(), 1);
    if (settings.emulated > 0) setenv(nodes_variable, std::to_string(settings.emulated).c_str(), 1);
    if (settings.plan.empty()) return;
    setenv(plan_variable, settings.plan.c_str(), 1);
    setenv("ASSAY_NUMA_NODES", std::to_string(nodes).c_str(), 1);
}

class Recorder {
public:
    Recorder(const Settings& settings, const RingFolder& folder)
        : settings_(settings), folder_(folder), topology_(read_topology(settings.emulated)) {}

    pid_t launch(const ForwardedSignals& signals);
    // Records until `has_ended` returns true, and up to children_limit_ns longer for children.
    template <class HasEnded>
    void run(HasEnded has_ended);
    void write();

private:
    void handle_events(bool include_newest);
    void watch(pid_t program);
    Sampling sampling() const;
    // The time of the next scan after a scan that began at `begin`; `interval` is the minimum
    // pause.
    Nanoseconds next_time(Nanoseconds begin, Nanoseconds interval) const;
    void handle(const KernelEvent& event);
    void find_new_rings();
    void inspect_processes(Nanoseconds time);
    Process* find_process(std::uint32_t pid);
    Process& add(std::uint32_t pid, std::uint32_t parent, std::uint64_t ns);
    bool is_any_alive() const;

    const Settings& settings_;
    const RingFolder& folder_;
    Topology topology_;
    KernelEvents kernel_;
    bool sees_faults_ = false;
    std::vector<KernelEvent> kernel_events_;
    struct PendingEvent {  // an event of a ring that is not handled yet
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
    Nanoseconds started_ = now(), next_thread_read_ = 0, next_scan_ = 0, next_ring_search_ = 0;
    int program_pidfd_ = -1;          // readable once the program has ended; -1: none
    std::size_t handled_events_ = 0;  // by the last handle_events()
};

// The allocations and placements of such a program are not recorded. What the kernel tells is.
void report_obstacle(const std::string& program, const std::string& why) {
    fmt::print(stderr, "assay-numa: {} {}; it runs unrecorded\n", printable(program),
               printable(why));
}

// Prints the programs that the recorded ones have started without the library: each is a file that
// hooks/start_notes.cpp has made.
void report_unrecorded(const std::string& folder) {
    std::error_code error;
    std::set<std::pair<std::string, std::string>> notes;  // program, why
    for (const auto& entry : fs::directory_iterator(folder, error)) {
        if (!entry.path().filename().string().starts_with(note_prefix)) continue;
        std::ifstream file(entry.path());
        std::string program, why;
        if (std::getline(file, why) && std::getline(file, program, '\0'))
            notes.emplace(program, why);
    }
    for (const auto& [program, why] : notes) report_obstacle(program, why);
}

pid_t Recorder::launch(const ForwardedSignals& signals) {
    const auto obstacle = preload::obstacle_of_command(settings_.program[0].c_str());
    if (obstacle != preload::PreloadObstacle::none)
        report_obstacle(settings_.program[0], preload::reason(obstacle));
    int exec_error[2], start[2];
    if (pipe2(exec_error, O_CLOEXEC) != 0 || pipe2(start, O_CLOEXEC) != 0)
        throw Error(std::string("no pipe: ") + std::strerror(errno));
    const pid_t pid = fork();
    if (pid < 0) throw Error(std::string("cannot start a process: ") + std::strerror(errno));
    if (pid == 0) {
        set_environment(settings_, folder_.path(), topology_.nodes.size());
        signals.restore();
        std::vector<char*> argv;
        argv.reserve(settings_.program.size() + 1);
        for (const std::string& word : settings_.program)
            argv.push_back(const_cast<char*>(word.c_str()));
        argv.push_back(nullptr);
        close(start[1]);
        char byte;
        [[maybe_unused]] const ssize_t n = read(start[0], &byte, 1);  // until the parent closes it
        execvp(argv[0], argv.data());
        const int error = errno;
        [[maybe_unused]] const ssize_t written = ::write(exec_error[1], &error, sizeof error);
        _exit(127);
    }
    try {
        watch(pid);
    } catch (const Error&) {
        kill(pid, SIGKILL);  // the child still waits before its exec
        waitpid(pid, nullptr, 0);
        throw;
    }
    add(static_cast<std::uint32_t>(pid), static_cast<std::uint32_t>(getpid()),
        static_cast<std::uint64_t>(now()));
    program_pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
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
    if (!sees_faults_) throw Error("accesses cannot be sampled: " + kernel_.failure());
    kernel_.sample_accesses(program, settings_.events);
}

Process& Recorder::add(std::uint32_t pid, std::uint32_t parent, std::uint64_t ns) {
    processes_.emplace_back(pid, parent, ns, topology_, sees_faults_);
    by_pid_[pid] = &processes_.back();
    return processes_.back();
}

Process* Recorder::find_process(std::uint32_t pid) {
    const auto entry = by_pid_.find(pid);
    return entry != by_pid_.end() ? entry->second : nullptr;
}

void Recorder::handle(const KernelEvent& event) {
    Process* process = find_process(event.pid);
    switch (event.kind) {
        case KernelEvent::Kind::start:
            if (event.parent == event.pid || process != nullptr) return;  // a thread
            process = &add(event.pid, event.parent, event.ns);
            if (const Process* parent = find_process(event.parent)) process->inherit(*parent);
            return;
        case KernelEvent::Kind::exec:
            if (process != nullptr) {
                process->note_replaced();
                process->set_end(event.ns);
            }
            add(event.pid, process != nullptr ? process->parent() : 0, event.ns);
            return;
        case KernelEvent::Kind::exit:
            if (process != nullptr && event.tid == event.pid) process->set_end(event.ns);
            return;
        case KernelEvent::Kind::access:
            if (process == nullptr)
                return;  // of a program that is not profiled: some PMUs sample the whole machine
            break;
        default: break;
    }
    if (process == nullptr) process = &add(event.pid, 0, event.ns);
    process->handle(event);
}

void Recorder::find_new_rings() {
    if (!folder_.was_woken() && folder_.pipe() >= 0 && now() < next_ring_search_) return;
    next_ring_search_ = now() + ring_interval_ns;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder_.path(), error)) {
        const std::string name = entry.path().filename();
        if (!name.ends_with(".ring") || known_rings_.contains(name)) continue;
        try {
            rings_.push_back(std::make_shared<RingReader>(entry.path()));
            known_rings_.insert(name);
            fs::remove(entry.path(), error);  // nobody else may open the file: see hooks/ring.hpp
        } catch (const Error&) {
            // The process is still creating the ring. The next search finds it.
        }
    }
}

// Handles the events of all processors and rings in time order. Events of the last hold_back_ns
// stay pending, since an earlier event may still arrive, unless `include_newest` is true.
void Recorder::handle_events(bool include_newest) {
    const auto limit = static_cast<std::uint64_t>(now() - (include_newest ? 0 : hold_back_ns));
    kernel_.drain([&](KernelEvent&& event) { kernel_events_.push_back(std::move(event)); });
    find_new_rings();
    for (const auto& ring : rings_)
        ring->drain([&](const Event& event) {
            pending_events_.push_back({event.ns, event.address, event.bytes, event.mask,
                                       event.more_mask, event.kind, event.tid, event.stack,
                                       event.mode, ring.get()});
        });
    std::ranges::stable_sort(kernel_events_, {}, &KernelEvent::ns);
    std::ranges::stable_sort(pending_events_, {}, &PendingEvent::ns);
    std::size_t kernel_count = 0, pending_count = 0;
    const auto handle_pending = [&](const PendingEvent& pending_event) {
        const auto entry = by_ring_.find(pending_event.ring);
        Process* process = entry != by_ring_.end() ? entry->second : nullptr;
        if (process == nullptr) {
            process = find_process(pending_event.ring->pid());
            if (process == nullptr) {
                process =
                    &add(pending_event.ring->pid(), pending_event.ring->parent(), pending_event.ns);
                if (const Process* parent = find_process(pending_event.ring->parent()))
                    process->inherit(*parent);
            } else if (!sees_faults_ && process->has_ring()) {
                process->note_replaced();
                process =
                    &add(pending_event.ring->pid(), pending_event.ring->parent(), pending_event.ns);
            }
            by_ring_[pending_event.ring] = process;
            for (const auto& ring : rings_)
                if (ring.get() == pending_event.ring) process->set_ring(ring);
        }
        Event event{};
        event.ns = pending_event.ns;
        event.kind = pending_event.kind;
        event.tid = pending_event.tid;
        event.address = pending_event.address;
        event.bytes = pending_event.bytes;
        event.mask = pending_event.mask;
        event.more_mask = pending_event.more_mask;
        event.stack = pending_event.stack;
        event.mode = pending_event.mode;
        process->handle(event);
    };
    while (true) {
        const bool has_kernel =
            kernel_count < kernel_events_.size() && kernel_events_[kernel_count].ns <= limit;
        const bool has_pending =
            pending_count < pending_events_.size() && pending_events_[pending_count].ns <= limit;
        if (!has_kernel && !has_pending) break;
        if (has_kernel &&
            (!has_pending || kernel_events_[kernel_count].ns <= pending_events_[pending_count].ns))
            handle(kernel_events_[kernel_count++]);
        else handle_pending(pending_events_[pending_count++]);
    }
    handled_events_ = kernel_count + pending_count;
    kernel_events_.erase(kernel_events_.begin(),
                         kernel_events_.begin() + static_cast<std::ptrdiff_t>(kernel_count));
    pending_events_.erase(pending_events_.begin(),
                          pending_events_.begin() + static_cast<std::ptrdiff_t>(pending_count));
    for (const auto& [pid, process] : by_pid_) {
        process->locate_touched_pages();
        process->locate_accessed_pages();
    }
}

void Recorder::inspect_processes(Nanoseconds time) {
    const auto ns = static_cast<std::uint64_t>(time);
    const bool scans = time >= next_scan_;
    if (std::ranges::any_of(by_pid_, [](const auto& e) { return e.second->wants_final_scan(); }))
        handle_events(true);
    const bool reads_threads = time >= next_thread_read_;
    for (const auto& [pid, process] : by_pid_) {
        const bool is_final = process->wants_final_scan();
        if (is_final || reads_threads) process->read_threads(ns);
    }
    if (reads_threads) next_thread_read_ = next_time(time, thread_interval_ns);
    const Nanoseconds begin = now();
    for (const auto& [pid, process] : by_pid_) {
        const bool is_final = process->wants_final_scan();
        if (scans || is_final) process->scan_resident_pages(ns);
        if (is_final) process->acknowledge_finish();
    }
    if (scans) next_scan_ = next_time(begin, scan_interval_ns);
}

Nanoseconds Recorder::next_time(Nanoseconds begin, Nanoseconds interval) const {
    const Nanoseconds end = now();
    return end +
           std::max({interval, (end - begin) * min_pause_factor, (end - started_) / age_divisor});
}

bool Recorder::is_any_alive() const {
    return std::ranges::any_of(by_pid_, [](const auto& entry) {
        return fs::exists(fmt::format("/proc/{}", entry.first));
    });
}

template <class HasEnded>
void Recorder::run(HasEnded has_ended) {
    Nanoseconds ended = 0;
    while (ended == 0 || (is_any_alive() && now() - ended < children_limit_ns)) {
        kernel_.wait(handled_events_ > 0 ? busy_poll_ms : idle_poll_ms,
                     {folder_.pipe(), program_pidfd_});
        handle_events(false);
        inspect_processes(now());
        if (ended == 0 && has_ended()) ended = now();
    }
    next_ring_search_ = 0;
    kernel_.stop();
    handle_events(true);
    for (const auto& ring : rings_) ring->mark_recorder_gone();
    if (program_pidfd_ >= 0) close(program_pidfd_);
}

void Recorder::write() {
    std::string note;
    if (!sees_faults_)
        note = settings_.watches_faults ? kernel_.failure() : "page faults were not watched";
    else if (!kernel_.includes_kernel_faults())
        note =
            "first touches inside system calls are not seen; fix: sysctl "
            "kernel.perf_event_paranoid=1";
    int serial = 0;
    for (const Process& process : processes_)
        if (!process.is_before_exec())
            process.write(settings_.directory, serial++, note, kernel_.losses().lost, sampling());
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
    ForwardedSignals signals;
    Recorder recorder(settings, rings);
    const pid_t program = recorder.launch(signals);
    int status = 0;
    recorder.run([&] {
        signals.pass_on(program);
        return waitpid(program, &status, WNOHANG) == program;
    });
    recorder.write();
    report_unrecorded(rings.path());
    return status;
}

}  // namespace assay::numa
