// The functions of the hook library that a recorder calls in a process that it attaches to, by name
// (engines/profile/attach).
//
// Both run in a thread that was interrupted anywhere, while all other threads are stopped. They
// allocate nothing, call no hook, and take no lock but that of the loader's list of objects, which
// the recorder has checked to be free.
#pragma once

#include <cstdint>

namespace assay::heap {

enum class AttachResult : std::uint32_t {
    attached,
    preloaded,     // the process was started with the hooks
    no_allocator,  // it has no malloc that could be hooked
    no_arena       // the arena could not be created
};

inline constexpr char attach_function[] = "assay_heap_attach",
                      detach_function[] = "assay_heap_detach";

}  // namespace assay::heap

extern "C" {
// Returns an AttachResult. `settings` are as in set_settings. No thread may be inside a hook.
std::uint32_t assay_heap_attach(const char* settings, std::uint64_t bytes);
void assay_heap_detach();
}
