// Starts the background drain of a store (the program assay-store) and asks it to open files. The
// ranks and the drain talk through fields of the store's superblock, in shared memory.
#include "storage/store/background.hpp"

#include <dlfcn.h>
#include <linux/futex.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <vector>

namespace assay::storage {
namespace {

constexpr std::uint64_t wait_limit_ns = 10'000'000'000;
constexpr std::uint64_t shortest_poll_ns = 20'000, longest_poll_ns = 2'000'000;

// Polls until the condition holds, for 10 s at most. Returns whether it holds.
template <class Condition>
bool wait_until(const Store& store, Condition condition) {
    const std::uint64_t deadline = store.now() + wait_limit_ns;
    for (std::uint64_t poll_ns = shortest_poll_ns; !condition();
         poll_ns = std::min(2 * poll_ns, longest_poll_ns)) {
        if (store.now() > deadline) return false;
        usleep(static_cast<unsigned>(poll_ns / 1000));
    }
    return true;
}

// The path of assay-store in the folder of this library.
std::string program_beside_this_library() {
    Dl_info info{};
    if (!dladdr(reinterpret_cast<void*>(&request_background_open), &info) || !info.dli_fname)
        return {};
    const std::string path = info.dli_fname;
    const auto slash = path.rfind('/');
    return (slash == std::string::npos ? "." : path.substr(0, slash)) + "/assay-store";
}

// Starts a program with an empty environment, default signal handlers and a session of its own.
// Returns 0 or errno. posix_spawn does not run the fork handlers of the MPI, which may print
// warnings.
int spawn_in_new_session(const std::vector<std::string>& arguments, pid_t& pid) {
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    char* empty_environment[] = {nullptr};
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    const int error =
        posix_spawn(&pid, argv[0], nullptr, &attributes, argv.data(), empty_environment);
    posix_spawnattr_destroy(&attributes);
    return error;
}

// Starts assay-store, which forks into the background, and waits for its parent process to exit.
// Returns an error message; empty: it has started.
std::string start_program(const Store& store, const BackgroundSettings& settings) {
    const std::string program =
        settings.program.empty() ? program_beside_this_library() : settings.program;
    pid_t pid = 0;
    if (const int error = spawn_in_new_session(
            {program, "background", store.path(), "--threads", std::to_string(settings.threads),
             "--lag", std::to_string(settings.lag_ms), "--retry", std::to_string(settings.retry_s)},
            pid))
        return program + ": " + std::strerror(error);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    // The user's program may reap all its children itself: then waitpid() fails and the status
    // stays 0.
    return status ? program + " has failed" : std::string();
}

}  // namespace

bool start_background_drain(const Store& store, const BackgroundSettings& settings,
                            std::string& error) {
    auto& state = store.superblock().background_state;
    auto expected = BackgroundState::none;
    if (state.compare_exchange_strong(expected, BackgroundState::starting)) {
        error = start_program(store, settings);
        if (!error.empty()) {
            state = BackgroundState::not_started;
            return false;
        }
    }
    wait_until(store, [&] { return state.load() != BackgroundState::starting; });
    if (state.load() == BackgroundState::running && background_drain_runs(store)) return true;
    error = "the background drain has not started within 10 s, or it has ended";
    return false;
}

bool background_drain_runs(const Store& store) {
    const auto pid = store.superblock().background.load(std::memory_order_acquire);
    return pid && !store.has_ended(pid);
}

void request_background_open(const Store& store) {
    auto& requests = store.superblock().background_requests;
    requests.fetch_add(1);
    syscall(SYS_futex, &requests, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool wait_for_background_open(const Store& store, std::uint32_t slot) {
    const auto& descriptor = store.background_descriptor_of(slot);
    if (!background_drain_runs(store)) return false;
    if (descriptor.load(std::memory_order_acquire)) return true;
    store.file(slot).background_open_failed = 0;
    request_background_open(store);
    wait_until(store, [&] {
        return descriptor.load() || store.file(slot).background_open_failed.load() ||
               !background_drain_runs(store);
    });
    return descriptor.load(std::memory_order_acquire) && background_drain_runs(store);
}

}  // namespace assay::storage
