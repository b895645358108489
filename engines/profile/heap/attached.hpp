// What a recorder calls in a process that it has attached to (engines/profile/attach), by these
// names.
//
// Both are called in a thread that was interrupted wherever it was, while all others stand still:
// they allocate nothing, wait for nothing but the loader's list of objects, which the recorder has
// seen to be free, and call no hook.
#pragma once

#include <cstdint>

namespace assay::heap {

enum class Answer : std::uint32_t { yes, started_with_it, nothing_to_hook, no_arena };

inline constexpr char attach_function[] = "assay_heap_attach",
                      detach_function[] = "assay_heap_detach";

}  // namespace assay::heap

extern "C" {
// An Answer. The settings are as in take_settings. No thread is inside a hook.
std::uint32_t assay_heap_attach(const char* settings, std::uint64_t bytes);
void assay_heap_detach();
}
