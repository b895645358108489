// Start, end, fork and attach of the recording in the profiled process.
#include "profile/heap/process.hpp"

#include <pthread.h>
#include <unistd.h>

#include "profile/heap/arena_file.hpp"
#include "profile/heap/bindings.hpp"
#include "profile/heap/notes.hpp"
#include "profile/heap/operators.hpp"
#include "profile/heap/settings.hpp"
#include "profile/heap/threads.hpp"

namespace assay::heap {

std::atomic<Phase> phase{Phase::not_started};
std::atomic<bool> is_attached{false};
stack::Tree stack_tree;

namespace {

std::atomic<bool> is_registered{false};

// Unmaps the arena. Threads use the next arena from their next event on.
void detach_arena() {
    release_arena();
    stack::generation.fetch_add(1, std::memory_order_relaxed);
    invalidate_modules();
    reset_python();
    detach_threads_from_arena();
}

// The child of a fork gets its own arena. The parent's other threads do not exist in it.
void after_fork_in_child() {
    invalidate_modules();
    if (phase.load(std::memory_order_relaxed) != Phase::active) return;
    if (!can_create_arena()) {
        // The parent's arena is still mapped.
        char name[max_note_bytes / 2];
        __builtin_snprintf(name, sizeof name, "%s (pid %d)", header->executable, getpid());
        note_unrecorded(name, "runs as another user, who cannot write the buffers");
    }
    phase.store(Phase::starting, std::memory_order_relaxed);
    detach_arena();
    reset_threads_in_child();
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

// The loader searches the executable before preloaded libraries. If the executable exports a
// malloc, the calls of its libraries are bound to the hooks here. Calls within the executable
// cannot be recorded.
bool start() {
    auto expected = Phase::not_started;
    if (environ == nullptr || !phase.compare_exchange_strong(expected, Phase::starting))
        return false;
    const char* directory = setting(directory_variable);
    const bool must_bind_hooks = find_functions() == HookPosition::not_preloaded;
    if (*directory == 0 || !is_recorded_rank() || !load_filter() || !create_arena(directory)) {
        phase.store(Phase::off, std::memory_order_release);
        return false;
    }
    register_callbacks();
    must_bind_hooks ? bind_hooks() : bind_operators();
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
    header->nodes_used.store(stack_tree.size(), std::memory_order_release);
    header->end_state.store(static_cast<std::uint32_t>(EndState::detached),
                            std::memory_order_release);
}

namespace {

void set_end_state(EndState state) {
    if (phase.load(std::memory_order_acquire) != Phase::active ||
        header->pid != static_cast<std::uint32_t>(getpid()))
        return;
    header->nodes_used.store(stack_tree.size(), std::memory_order_release);
    header->end_state.store(static_cast<std::uint32_t>(state), std::memory_order_release);
}

}  // namespace

void note_exit() { set_end_state(EndState::exited); }
void cancel_exit() { set_end_state(EndState::none); }

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

// Runs at the exit of the process.
__attribute__((destructor)) void record_process_end() {
    if (phase.load(std::memory_order_acquire) != Phase::active) return;
    if (Thread* thread = recording_thread()) {
        thread->in_hook = 1;
        record_residency(*thread);
        record_modules(*thread);
        record_mappings(*thread);
        thread->in_hook = 0;
    }
    note_exit();
}

__attribute__((constructor(101))) void start_at_load() {
    register_callbacks();
    start();
}

}  // namespace

}  // namespace assay::heap
