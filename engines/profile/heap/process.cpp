#include "profile/heap/process.hpp"

#include <pthread.h>
#include <unistd.h>

#include "profile/heap/bindings.hpp"
#include "profile/heap/notes.hpp"
#include "profile/heap/operators.hpp"
#include "profile/heap/own_arena.hpp"
#include "profile/heap/settings.hpp"
#include "profile/heap/threads.hpp"

namespace assay::heap {

std::atomic<Phase> phase{Phase::fresh};
std::atomic<bool> is_attached{false};
stack::Tree tree;

namespace {

std::atomic<bool> is_registered{false};

// Unmaps the arena. Threads join the next one at their next event.
void detach_arena() {
    release_arena();
    stack::generation.fetch_add(1, std::memory_order_relaxed);
    invalidate_modules();
    reset_python();
    leave_arena();
}

// The child of a fork gets its own arena. The parent's other threads do not exist in it.
void after_fork_in_child() {
    invalidate_modules();
    if (phase.load(std::memory_order_relaxed) != Phase::active) return;
    if (!can_create_arena()) {
        // The parent's arena is still there.
        char name[max_note_bytes / 2];
        __builtin_snprintf(name, sizeof name, "%s (pid %d)", header->executable, getpid());
        note_unrecorded(name, "runs as another user, who cannot write the buffers");
    }
    phase.store(Phase::starting, std::memory_order_relaxed);
    detach_arena();
    forget_threads();
    phase.store(create_arena(arena_directory()) ? Phase::active : Phase::off,
                std::memory_order_release);
}

// Registers callbacks with the C library, once. This may allocate.
void register_callbacks() {
    if (is_registered.exchange(true)) return;
    register_thread_key();
    pthread_atfork(nullptr, nullptr, after_fork_in_child);
}

}  // namespace

// The loader binds calls to the executable before it looks at preloaded libraries. So where the
// executable exports a malloc, the libraries' calls are bound to the hooks here; those of the
// executable itself are not seen.
bool start() {
    auto expected = Phase::fresh;
    if (environ == nullptr || !phase.compare_exchange_strong(expected, Phase::starting))
        return false;
    const char* directory = setting(directory_variable);
    const bool is_bypassed = find_functions() == HookPosition::not_preloaded;
    if (*directory == 0 || !is_recorded_rank() || !load_filter() || !create_arena(directory)) {
        phase.store(Phase::off, std::memory_order_release);
        return false;
    }
    register_callbacks();
    is_bypassed ? bind_hooks() : bind_operators();
    phase.store(Phase::active, std::memory_order_release);
    return true;
}

bool restart() {
    phase.store(Phase::starting, std::memory_order_release);
    is_attached.store(true, std::memory_order_relaxed);
    detach_arena();
    clear_hook_marks();
    const bool is_ready = load_filter() && create_arena(setting(directory_variable));
    phase.store(is_ready ? Phase::active : Phase::off, std::memory_order_release);
    return is_ready;
}

bool is_recorded_from_start() {
    return phase.load(std::memory_order_relaxed) == Phase::active &&
           !is_attached.load(std::memory_order_relaxed);
}

void stop() {
    if (phase.load(std::memory_order_relaxed) != Phase::active) return;
    phase.store(Phase::off, std::memory_order_release);
    header->nodes_used.store(tree.size(), std::memory_order_release);
    header->end_state.store(static_cast<std::uint32_t>(EndState::detached),
                            std::memory_order_release);
}

namespace {

void set_end(EndState state) {
    if (phase.load(std::memory_order_acquire) != Phase::active ||
        header->pid != static_cast<std::uint32_t>(getpid()))
        return;
    header->nodes_used.store(tree.size(), std::memory_order_release);
    header->end_state.store(static_cast<std::uint32_t>(state), std::memory_order_release);
}

}  // namespace

void note_exit() { set_end(EndState::exited); }
void withdraw_exit() { set_end(EndState::none); }

void before_unloading() {
    const ErrnoGuard errno_guard;
    if (Thread* thread = recording_thread()) {
        thread->in_hook = 1;
        record_modules(*thread);
        thread->in_hook = 0;
    }
    pause_python();
}

void after_unloading() {
    stack::generation.fetch_add(1, std::memory_order_release);
    resume_python();
}

namespace {

// At the exit of the process.
__attribute__((destructor)) void finish() {
    if (phase.load(std::memory_order_acquire) != Phase::active) return;
    if (Thread* thread = recording_thread()) {
        thread->in_hook = 1;
        record_residency(*thread);
        record_modules(*thread);
        thread->in_hook = 0;
    }
    note_exit();
}

__attribute__((constructor(101))) void begin() {
    register_callbacks();
    start();
}

}  // namespace

}  // namespace assay::heap
