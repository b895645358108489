// Prints which program is started without the accelerator, because it cannot be loaded into it.
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>

#include "core/rank_variables.hpp"
#include "core/unsafe_text.hpp"
#include "preload/start.hpp"

namespace assay::preload {
namespace {

// Whether a line was printed. It is in memory that this process shares with its children, so that a
// shell that starts many such programs prints one line; null: there is no memory.
std::atomic<bool>* has_printed = nullptr;

__attribute__((constructor)) void share_with_children() {
    void* memory = mmap(nullptr, sizeof *has_printed, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) has_printed = static_cast<std::atomic<bool>*>(memory);
}

// Whether this process is the first rank of a job, or belongs to none.
bool speaks_for_job() {
    for (const char* name : rank_variables)
        if (const char* rank = getenv(name)) return strcmp(rank, "0") == 0;
    return true;
}

iovec part(const char* text) { return {const_cast<char*>(text), strlen(text)}; }

}  // namespace

const char* const library_name = "libassay-io-";

void note_start_without_library(const char* path, const char* why) {
    if (!speaks_for_job() || (has_printed != nullptr && has_printed->exchange(true))) return;
    char shown[PATH_MAX];
    std::size_t length = 0;
    const std::size_t bytes = strnlen(path, sizeof shown - 1);
    for (std::size_t k = 0; k < bytes;) {
        const std::size_t unsafe = unsafe_bytes(path + k, bytes - k);
        shown[length++] = unsafe != 0 ? '?' : path[k];
        k += unsafe != 0 ? unsafe : 1;
    }
    shown[length] = 0;
    const iovec parts[] = {part("assay io: "), part(shown), part(" "), part(why),
                           part("; it runs without the accelerator\n")};
    [[maybe_unused]] const ssize_t written = writev(STDERR_FILENO, parts, 5);
}

const char* why_idle(bool) { return nullptr; }
void note_end() {}
void cancel_end() {}

}  // namespace assay::preload
