#include "profile/heap/attached.hpp"

#include "profile/heap/bindings.hpp"
#include "profile/heap/process.hpp"
#include "profile/heap/settings.hpp"

using namespace assay::heap;

#define ASSAY_CALLED_FROM_OUTSIDE __attribute__((visibility("default")))

ASSAY_CALLED_FROM_OUTSIDE std::uint32_t assay_heap_attach(const char* settings,
                                                          std::uint64_t bytes) {
    const ErrnoKept errno_kept;
    const auto answer = [=] {
        const Front front = find_functions();
        if (front == Front::in_front) return Answer::started_with_it;
        if (front == Front::none) return Answer::nothing_to_hook;
        unbind_hooks();  // of a recorder that was killed
        if (!take_settings(settings, bytes) || !start_again()) return Answer::no_arena;
        bind_hooks();
        return Answer::yes;
    }();
    return static_cast<std::uint32_t>(answer);
}

ASSAY_CALLED_FROM_OUTSIDE void assay_heap_detach() {
    const ErrnoKept errno_kept;
    unbind_hooks();
    stop();
}
