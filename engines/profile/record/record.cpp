// The recorder process of assay heap: starts or attaches to the program and drains all arenas.
#include "profile/record/record.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/memory_folder.hpp"
#include "core/text.hpp"
#include "preload/libraries.hpp"
#include "preload/obstacle.hpp"
#include "profile/attach/attach.hpp"
#include "profile/forwarded_signals.hpp"
#include "profile/record/fault_watch.hpp"
#include "profile/record/pending_faults.hpp"
#include "profile/record/trace_recorder.hpp"

namespace assay::heap {
namespace {

using profile::ForwardedSignals;

namespace fs = std::filesystem;

constexpr const char* arenas_prefix = "assay-heap-";  // of the folder of the arenas
// Between searches for new and ended processes.
constexpr Nanoseconds scan_interval_ns = 10'000'000;
constexpr Nanoseconds children_limit_ns = 1'000'000'000;  // for children that outlive the program
constexpr std::size_t max_pending_faults = 100'000;
constexpr auto poll_interval = std::chrono::microseconds(500);

volatile sig_atomic_t received_signal = 0;
void on_signal(int number) { received_signal = number; }
volatile sig_atomic_t dump_requested = 0;
void on_dump_signal(int) { dump_requested = 1; }

// The environment variables for the hooks.
std::map<std::string, std::string> make_environment(const Settings& settings,
                                                    const std::string& arenas) {
    std::map<std::string, std::string> variables{{directory_variable, arenas}};
    if (settings.min_block_bytes > 0)
        variables[min_block_variable] = std::to_string(settings.min_block_bytes);
    if (settings.sample_bytes > 0)
        variables[sample_variable] = std::to_string(settings.sample_bytes);
    if (!settings.records_python) variables[no_python_variable] = "1";
    if (!settings.ranks.empty()) variables[ranks_variable] = settings.ranks;
    return variables;
}

// Starts the program as a child. A pipe reports a failed exec. Page faults are watched from its
// first instruction on.
pid_t launch(Settings& settings, const std::string& arenas, FaultWatch& faults,
             const ForwardedSignals& signals) {
    std::vector<std::string>& program = settings.program;
    const preload::PreloadObstacle obstacle = preload::obstacle_of_command(program[0].c_str());
    if (obstacle != preload::PreloadObstacle::none)
        fmt::print(stderr, "assay-heap: {} {}; it runs unrecorded\n", printable(program[0]),
                   preload::reason(obstacle));
    int exec_error[2], start_pipe[2];
    if (pipe2(exec_error, O_CLOEXEC) != 0 || pipe2(start_pipe, O_CLOEXEC) != 0)
        throw Error(std::string("no pipe: ") + std::strerror(errno));
    const pid_t pid = fork();
    if (pid < 0) throw Error(std::string("cannot start a process: ") + std::strerror(errno));
    if (pid == 0) {
        if (obstacle == preload::PreloadObstacle::none)
            setenv("LD_PRELOAD",
                   preload::with_library(settings.library, std::getenv("LD_PRELOAD")).c_str(), 1);
        for (const auto& [name, value] : make_environment(settings, arenas))
            setenv(name.c_str(), value.c_str(), 1);
        signals.restore();
        std::signal(SIGPIPE, SIG_DFL);
        std::vector<char*> argv;
        argv.reserve(program.size() + 1);
        for (std::string& argument : program) argv.push_back(argument.data());
        argv.push_back(nullptr);
        close(start_pipe[1]);
        char byte;
        // Waits until the parent closes its end.
        [[maybe_unused]] const ssize_t byte_count = read(start_pipe[0], &byte, 1);
        execvp(argv[0], argv.data());
        const int error = errno;
        [[maybe_unused]] const ssize_t n = write(exec_error[1], &error, sizeof error);
        _exit(127);
    }
    settings.watches_faults = settings.watches_faults && faults.prepare() &&
                              faults.watch({&pid, 1}, FaultWatch::StartAt::exec);
    close(start_pipe[0]);
    close(start_pipe[1]);
    close(exec_error[1]);
    int error = 0;
    const bool failed = read(exec_error[0], &error, sizeof error) == sizeof error;
    close(exec_error[0]);
    if (!failed) return pid;
    waitpid(pid, nullptr, 0);
    throw Error(fmt::format("cannot run {}: {}", program[0], std::strerror(error)),
                error == ENOENT ? "is it on PATH?" : "");
}

class Recorder {
public:
    Recorder(const Settings& settings, const std::string& arenas, FaultWatch& faults)
        : settings_(settings), arenas_(arenas), faults_(faults) {}

    // Records until has_ended() returns true, and up to children_limit_ns longer for processes that
    // the program has left behind.
    void run(const std::function<bool()>& has_ended) {
        for (Nanoseconds ended = 0;;) {
            bool has_copied = false;
            for (TraceRecorder& recorder : recorders_) {
                recorder.sample();
                has_copied |= recorder.drain();
            }
            const Nanoseconds t = now();
            drain_faults();
            if (t - last_scan_ > scan_interval_ns) {
                last_scan_ = t;
                scan();
                if (ended == 0 && has_ended()) {
                    ended = t;
                    scan();
                }
                dump();
            }
            if (ended != 0 && (recorders_.empty() || t - ended > children_limit_ns)) break;
            if (!has_copied) std::this_thread::sleep_for(poll_interval);
        }
        scan();
        for (TraceRecorder& recorder : recorders_) {
            recorder.abandon();
            finish(recorder, false);
        }
        for (const pid_t pid : analyser_pids_)
            waitpid(pid, nullptr, 0);  // they only read files, so they end
    }

    // Finds new processes and completes the traces of those that have ended.
    void scan() {
        // The ended processes are determined before the arenas are listed, so that the list
        // contains their last arenas. These show whether an exec replaced a program.
        std::set<const TraceRecorder*> ended;
        for (TraceRecorder& recorder : recorders_)
            if (recorder.has_ended()) ended.insert(&recorder);
        for (const auto& entry : fs::directory_iterator(arenas_)) {
            const std::string name = entry.path().filename();
            if (!name.ends_with(".arena") || !known_arenas_.insert(name).second) continue;
            recorders_.emplace_back(
                entry.path(), settings_.directory + "/" + name.substr(0, name.size() - 6) + ".heap",
                settings_, lost_before_);
        }
        lost_before_ = faults_.lost();
        std::map<std::uint32_t, std::uint64_t> newest;  // start time of the last arena by pid
        for (const TraceRecorder& recorder : recorders_)
            newest[recorder.pid()] = std::max(newest[recorder.pid()], recorder.start_ticks());
        for (auto recorder = recorders_.begin(); recorder != recorders_.end();) {
            // A newer arena of the same process means that an exec has replaced the program.
            const bool replaced = recorder->start_ticks() < newest[recorder->pid()];
            report_failure(*recorder);
            if (!replaced && !ended.contains(&*recorder)) {
                ++recorder;
                continue;
            }
            finish(*recorder, replaced);
            recorder = recorders_.erase(recorder);
        }
    }

private:
    // Passes page faults to the recorders.
    void drain_faults(bool counts_losses = false) {
        const auto keep = [&](const Fault& fault) { pending_faults_.add(fault); };
        counts_losses ? faults_.drain_all(keep) : faults_.drain(keep);
        pending_faults_.pass([&](const Fault& fault) {
            for (TraceRecorder& recorder : recorders_)
                if (recorder.pid() == fault.pid) {
                    recorder.note_fault(fault);
                    return true;
                }
            return false;
        });
    }

    // Completes a trace. Each kind of warning is printed once, for the first process that has it.
    void finish(TraceRecorder& recorder, bool is_replaced) {
        drain_faults(true);
        recorder.finish(faults_.lost(),
                        pending_faults_.dropped(recorder.pid(), recorder.start_ns()), is_replaced);
        report_failure(recorder);
        for (const std::string& line : recorder.warnings())
            if (reported_warnings_.insert(line.substr(line.find_first_not_of("0123456789 ")))
                    .second)
                fmt::print(stderr, "assay-heap: {}: {}\n", recorder.program(), line);
    }

    void report_failure(TraceRecorder& recorder) {
        if (recorder.error().empty()) return;
        recorder.abandon();
        if (!is_failure_reported_)
            fmt::print(stderr,
                       "assay-heap: cannot write the trace: {}; what the program does from there "
                       "on is not recorded\n",
                       recorder.error());
        is_failure_reported_ = true;
    }

    // Analyses the traces so far, in separate processes, since this process must keep draining.
    void dump() {
        const bool is_requested = dump_requested != 0;
        dump_requested = 0;
        for (TraceRecorder& recorder : recorders_) {
            if (!recorder.crosses_dump_threshold() && !is_requested) continue;
            recorder.drain();
            const std::string stem =
                recorder.trace_path().substr(0, recorder.trace_path().size() - 5);
            const std::string output = fmt::format("{}.dump{}.json", stem, ++dump_count_),
                              bytes = std::to_string(recorder.written_bytes());
            const pid_t pid = fork();
            if (pid > 0) analyser_pids_.push_back(pid);
            if (pid != 0) continue;
            std::signal(SIGINT, SIG_IGN);  // Ctrl-C ends the program, not the analysis
            const int fd =
                open((output + ".part").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
            if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0) _exit(1);
            [[maybe_unused]] const int lower = nice(10);
            execl("/bin/sh", "sh", "-c",
                  "\"$0\" analyse \"$1\" --bytes \"$2\" && mv \"$3.part\" \"$3\"",
                  fs::read_symlink("/proc/self/exe").c_str(), recorder.trace_path().c_str(),
                  bytes.c_str(), output.c_str(), nullptr);
            _exit(1);
        }
    }

    const Settings& settings_;
    std::string arenas_;
    FaultWatch& faults_;
    PendingFaults pending_faults_{max_pending_faults};
    std::uint64_t lost_before_ = 0;  // page faults, up to the last search for new processes
    int dump_count_ = 0;
    std::vector<pid_t> analyser_pids_;  // processes that analyse dumps
    std::list<TraceRecorder> recorders_;
    std::set<std::string> known_arenas_, reported_warnings_;
    Nanoseconds last_scan_ = 0;
    bool is_failure_reported_ = false;
};

}  // namespace

int record(Settings settings) {
    const MemoryFolder arenas(arenas_prefix, settings.directory);
    ForwardedSignals signals;
    std::signal(SIGUSR1, on_dump_signal);
    FaultWatch faults;
    const pid_t program = launch(settings, arenas.path(), faults, signals);
    int status = 0;
    Recorder(settings, arenas.path(), faults).run([&] {
        signals.pass_on(program);
        return waitpid(program, &status, WNOHANG) == program;
    });
    return status;
}

namespace {

// Watching page faults takes a file descriptor per thread and processor.
void raise_file_limit() {
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

// Detaches. If that fails, the hooks remove themselves once the recorder no longer frees buffers.
void detach(attach::Attachment& attachment) {
    try {
        attachment.detach();
    } catch (const Error& error) {
        fmt::print(stderr,
                   "assay-heap: {}; its hooks take themselves out when they find no recorder\n",
                   error.what());
    }
}

// Permits the process, which may belong to another user, to create its arena in the folder. If this
// fails, creating the arena fails and is reported.
void give_to_owner(const std::string& arenas, pid_t process) {
    struct stat status{};
    if (stat(fmt::format("/proc/{}", process).c_str(), &status) != 0 || status.st_uid == geteuid())
        return;
    [[maybe_unused]] const int done = chown(arenas.c_str(), status.st_uid, status.st_gid);
}

}  // namespace

void record_running(Settings settings) {
    const MemoryFolder arenas(arenas_prefix, settings.directory);
    give_to_owner(arenas.path(), settings.process);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, on_signal);
    std::signal(SIGUSR1, on_dump_signal);
    raise_file_limit();
    FaultWatch faults;
    settings.watches_faults = settings.watches_faults && faults.prepare();
    std::string environment;
    for (const auto& [name, value] : make_environment(settings, arenas.path()))
        environment.append(name).append(1, '=').append(value).append(1, '\0');
    attach::Attachment attachment(
        settings.process, settings.library, environment, [&](std::span<const pid_t> threads) {
            settings.watches_faults =
                settings.watches_faults && faults.watch(threads, FaultWatch::StartAt::now);
        });
    settings.ran_ns = static_cast<std::uint64_t>(attachment.process_age());
    const Nanoseconds start = now(), stopped_at_attach = attachment.longest_stop();
    Recorder recorder(settings, arenas.path(), faults);
    recorder.scan();  // locks the process's buffers, which refuses other recorders
    fmt::print("attached {}\n", settings.process);
    std::fflush(stdout);
    recorder.run([&] {
        if (attachment.is_over()) return true;
        const bool is_time = settings.seconds > 0 && seconds(now() - start) >= settings.seconds;
        if (received_signal == 0 && !is_time) return false;
        detach(attachment);
        fmt::print("left {} {:.6f} {:.6f}\n", settings.process, seconds(stopped_at_attach),
                   seconds(attachment.longest_stop()));
        return true;
    });
}

}  // namespace assay::heap
