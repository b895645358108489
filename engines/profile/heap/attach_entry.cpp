// The functions that an attaching recorder calls: start and stop recording in a running process.
#include "profile/heap/attach_entry.hpp"

#include "profile/heap/bindings.hpp"
#include "profile/heap/process.hpp"
#include "profile/heap/settings.hpp"

using namespace assay::heap;

#define ASSAY_EXPORTED __attribute__((visibility("default")))

ASSAY_EXPORTED std::uint32_t assay_heap_attach(const char* settings, std::uint64_t bytes) {
    const ErrnoGuard errno_guard;
    const auto result = [=] {
        const HookPosition position = find_functions();
        if (position == HookPosition::preloaded || is_recorded_from_start())
            return AttachResult::preloaded;
        if (position == HookPosition::no_allocator) return AttachResult::no_allocator;
        unbind_hooks();  // hooks of an earlier recorder that was killed
        if (!set_settings(settings, bytes) || !restart()) return AttachResult::no_arena;
        bind_hooks();
        return AttachResult::attached;
    }();
    return static_cast<std::uint32_t>(result);
}

ASSAY_EXPORTED void assay_heap_detach() {
    const ErrnoGuard errno_guard;
    unbind_hooks();
    stop();
}
