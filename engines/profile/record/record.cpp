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
#include "profile/attach/attach.hpp"
#include "profile/record/faults.hpp"
#include "profile/record/spool.hpp"

namespace assay::heap {
namespace {

namespace fs = std::filesystem;

constexpr Nanoseconds look_ns = 10'000'000;         // for new processes, and for ended ones
constexpr Nanoseconds children_ns = 1'000'000'000;  // that others may outlive the program
constexpr std::size_t most_waiting = 100'000;       // faults
constexpr auto nap = std::chrono::microseconds(500);

volatile sig_atomic_t noted = 0;
void note_signal(int number) { noted = number; }
volatile sig_atomic_t to_dump = 0;
void note_dump(int) { to_dump = 1; }

// In memory, where there is such a place: what is in it was never meant for a disk.
class ArenaFolder {
public:
    explicit ArenaFolder(const std::string& otherwise) {
        for (std::string path :
             {std::string("/dev/shm/assay-heap-XXXXXX"), otherwise + "/arena-XXXXXX"})
            if (mkdtemp(path.data()) != nullptr) {
                path_ = path;
                return;
            }
        throw Error("no place for the buffers: neither /dev/shm nor " + otherwise +
                    " can be written to");
    }
    ~ArenaFolder() {
        std::error_code none;
        fs::remove_all(path_, none);
    }
    const std::string& path() const { return path_; }
    // Who makes his buffers there, where that is somebody else.
    void give_to_owner_of(pid_t pid) const {
        struct stat of{};
        if (stat(fmt::format("/proc/{}", pid).c_str(), &of) != 0 || of.st_uid == geteuid()) return;
        [[maybe_unused]] const int done = chown(
            path_.c_str(), of.st_uid, of.st_gid);  // else its making of them will fail, and says so
    }

private:
    std::string path_;
};

// What the hooks are told.
std::map<std::string, std::string> variables(const Settings& settings, const std::string& arenas) {
    std::map<std::string, std::string> all{{directory_variable, arenas}};
    if (settings.at_least > 0) all[at_least_variable] = std::to_string(settings.at_least);
    if (settings.sample > 0) all[sample_variable] = std::to_string(settings.sample);
    if (!settings.reads_python) all[no_python_variable] = "1";
    if (!settings.ranks.empty()) all[ranks_variable] = settings.ranks;
    return all;
}

// The program, as a child; a failed exec is told through the pipe. Its faults are watched from its
// first instruction on.
pid_t launch(Settings& settings, const std::string& arenas, FaultWatch& faults) {
    std::vector<std::string>& program = settings.program;
    int told[2], go[2];
    if (pipe2(told, O_CLOEXEC) != 0 || pipe2(go, O_CLOEXEC) != 0)
        throw Error(std::string("no pipe: ") + std::strerror(errno));
    const pid_t pid = fork();
    if (pid < 0) throw Error(std::string("cannot start a process: ") + std::strerror(errno));
    if (pid == 0) {
        const char* before = std::getenv("LD_PRELOAD");
        setenv(
            "LD_PRELOAD",
            (before != nullptr && *before != 0 ? settings.library + ":" + before : settings.library)
                .c_str(),
            1);
        for (const auto& [name, value] : variables(settings, arenas))
            setenv(name.c_str(), value.c_str(), 1);
        std::signal(SIGUSR1, SIG_DFL);
        std::signal(SIGINT, SIG_DFL);
        std::signal(SIGTERM, SIG_DFL);
        std::signal(SIGPIPE, SIG_DFL);
        std::vector<char*> words;
        for (std::string& word : program) words.push_back(word.data());
        words.push_back(nullptr);
        close(go[1]);
        char word;
        [[maybe_unused]] const ssize_t none =
            read(go[0], &word, 1);  // until the other end is closed
        execvp(words[0], words.data());
        const int error = errno;
        [[maybe_unused]] const ssize_t n = write(told[1], &error, sizeof error);
        _exit(127);
    }
    settings.watches_faults = settings.watches_faults && faults.prepare() &&
                              faults.watch({&pid, 1}, FaultWatch::From::exec);
    close(go[0]);
    close(go[1]);
    close(told[1]);
    int error = 0;
    const bool failed = read(told[0], &error, sizeof error) == sizeof error;
    close(told[0]);
    if (!failed) return pid;
    waitpid(pid, nullptr, 0);
    throw Error(fmt::format("cannot run {}: {}", program[0], std::strerror(error)),
                error == ENOENT ? "is it on PATH?" : "");
}

class Recorder {
public:
    Recorder(const Settings& settings, const std::string& arenas, FaultWatch& faults)
        : settings_(settings), arenas_(arenas), faults_(faults) {}

    // Until `has_ended`, which is asked now and then, and a little longer for processes that the
    // program has left behind.
    void run(const std::function<bool()>& has_ended) {
        for (Nanoseconds ended = 0;;) {
            bool busy = false;
            for (Spool& spool : spools_) {
                spool.sample();
                busy |= spool.drain();
            }
            const Nanoseconds t = now();
            drain_faults();
            if (t - looked_ > look_ns) {
                looked_ = t;
                look();
                if (ended == 0 && has_ended()) {
                    ended = t;
                    look();
                }
                dump();
            }
            if (ended != 0 && (spools_.empty() || t - ended > children_ns)) break;
            if (!busy) std::this_thread::sleep_for(nap);
        }
        look();
        for (Spool& spool : spools_) {
            spool.abandon();
            spool.finish();
        }
        for (const pid_t pid : analysing_)
            waitpid(pid, nullptr, 0);  // reading a file takes its time, and ends
    }

private:
    // Those of a process before its arena is found are kept until then.
    void drain_faults() {
        faults_.drain([&](const Fault& fault) { waiting_.push_back(fault); });
        std::erase_if(waiting_, [&](const Fault& fault) {
            for (Spool& spool : spools_)
                if (spool.pid() == fault.pid) {
                    spool.note_fault(fault);
                    return true;
                }
            return false;
        });
        if (waiting_.size() > most_waiting)
            waiting_.clear();  // of programs that cannot be recorded
    }

    void look() {
        for (const auto& entry : fs::directory_iterator(arenas_)) {
            const std::string name = entry.path().filename();
            if (!name.ends_with(".arena") || !seen_.insert(name).second) continue;
            spools_.emplace_back(entry.path(),
                                 settings_.folder + "/" + name.substr(0, name.size() - 6) + ".heap",
                                 settings_);
        }
        std::map<std::uint32_t, std::uint64_t> newest;  // by process: when its last one was made
        for (const Spool& spool : spools_)
            newest[spool.pid()] = std::max(newest[spool.pid()], spool.started());
        for (auto spool = spools_.begin(); spool != spools_.end();) {
            // A process that has a newer arena has become another program.
            const bool replaced = spool->started() < newest[spool->pid()];
            heed_failure(*spool);
            if (!replaced && !spool->is_over()) {
                ++spool;
                continue;
            }
            drain_faults();
            spool->finish(replaced);
            spool = spools_.erase(spool);
        }
    }

    void heed_failure(Spool& spool) {
        if (spool.failed().empty()) return;
        spool.abandon();
        if (!full_)
            fmt::print(
                stderr,
                "assay-heap: the trace cannot be written: {}; the program goes on unrecorded\n",
                spool.failed());
        full_ = true;
    }

    // A profile of what has been written until now, made by another process: this one has to keep
    // up.
    void dump() {
        const bool asked = to_dump != 0;
        to_dump = 0;
        for (Spool& spool : spools_) {
            if (!spool.passes_threshold() && !asked) continue;
            spool.drain();
            const std::string stem = spool.trace().substr(0, spool.trace().size() - 5);
            const std::string into = fmt::format("{}.dump{}.json", stem, ++dumps_),
                              bytes = std::to_string(spool.written());
            const pid_t pid = fork();
            if (pid > 0) analysing_.push_back(pid);
            if (pid != 0) continue;
            const int fd =
                open((into + ".part").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
            if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0) _exit(1);
            [[maybe_unused]] const int lower = nice(10);
            execl("/bin/sh", "sh", "-c",
                  "\"$0\" analyse \"$1\" --bytes \"$2\" && mv \"$3.part\" \"$3\"",
                  fs::read_symlink("/proc/self/exe").c_str(), spool.trace().c_str(), bytes.c_str(),
                  into.c_str(), nullptr);
            _exit(1);
        }
    }

    const Settings& settings_;
    std::string arenas_;
    FaultWatch& faults_;
    std::vector<Fault> waiting_;
    int dumps_ = 0;
    std::vector<pid_t> analysing_;  // what makes profiles on the way
    std::list<Spool> spools_;
    std::set<std::string> seen_;
    Nanoseconds looked_ = 0;
    bool full_ = false;
};

}  // namespace

int record(Settings settings) {
    const ArenaFolder arenas(settings.folder);
    // Ctrl-C goes to the program's whole group: how it ends is its own affair. What else comes is
    // passed on.
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGTERM, note_signal);
    std::signal(SIGHUP, note_signal);
    std::signal(SIGUSR1, note_dump);
    FaultWatch faults;
    const pid_t program = launch(settings, arenas.path(), faults);
    int status = 0;
    Recorder(settings, arenas.path(), faults).run([&] {
        if (const int number = std::exchange(noted, 0); number != 0) kill(program, number);
        return waitpid(program, &status, WNOHANG) == program;
    });
    return status;
}

namespace {

// A watch of page faults takes some for each of its threads.
void allow_many_files() {
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

// Where that is not possible, the hooks take themselves out: nobody empties their buffers any more.
void leave(attach::Attachment& attachment) {
    try {
        attachment.leave();
    } catch (const Error& error) {
        fmt::print(
            stderr,
            "assay-heap: {}; its hooks take themselves out when they find nobody to record them\n",
            error.what());
    }
}

}  // namespace

void record_running(Settings settings) {
    const ArenaFolder arenas(settings.folder);
    arenas.give_to_owner_of(settings.process);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, note_signal);
    std::signal(SIGUSR1, note_dump);
    allow_many_files();
    FaultWatch faults;
    settings.watches_faults = settings.watches_faults && faults.prepare();
    std::string words;
    for (const auto& [name, value] : variables(settings, arenas.path()))
        words += name + '=' + value + '\0';
    attach::Attachment attachment(
        settings.process, settings.library, words, [&](std::span<const pid_t> threads) {
            settings.watches_faults =
                settings.watches_faults && faults.watch(threads, FaultWatch::From::now);
        });
    settings.ran_ns = static_cast<std::uint64_t>(attachment.ran());
    const Nanoseconds start = now(), stood_still = attachment.stood_still();
    fmt::print("attached {}\n", settings.process);
    std::fflush(stdout);
    Recorder(settings, arenas.path(), faults).run([&] {
        if (attachment.is_over()) return true;
        const bool is_time = settings.seconds > 0 && seconds(now() - start) >= settings.seconds;
        if (noted == 0 && !is_time) return false;
        leave(attachment);
        fmt::print("left {} {:.6f} {:.6f}\n", settings.process, seconds(stood_still),
                   seconds(attachment.stood_still()));
        return true;
    });
}

}  // namespace assay::heap
