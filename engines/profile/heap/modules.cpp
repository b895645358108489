// Records the list of loaded objects, and looks for interpreters and unhooked calls in new ones.
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "profile/heap/bindings.hpp"
#include "profile/heap/process.hpp"
#include "profile/heap/settings.hpp"

namespace assay::heap {
namespace {

// The loader's count of loaded and unloaded objects when the list was recorded last; 0: never.
std::atomic<unsigned long long> objects_seen{0};
constexpr std::size_t max_text_bytes = 16 << 10;  // limit of one event: a quarter of a buffer
constexpr std::size_t max_list_bytes = 1 << 20;   // limit of the whole list

struct ModuleText {
    char* cursor;
    char* end;
    bool is_incomplete = false;  // an object is not relocated yet

    void add(const char* text) {
        while (*text != 0 && cursor < end) *cursor++ = *text++;
    }
    void add_hex(std::uint64_t value) {
        char digits[17];
        int n = 0;
        do digits[n++] = "0123456789abcdef"[value & 15];
        while ((value >>= 4) != 0);
        while (n > 0 && cursor < end) *cursor++ = digits[--n];
    }
};

// Appends a line: "load-bias begin end build-id path".
int write_module(dl_phdr_info* info, std::size_t, void* context) {
    if (*setting(no_python_variable) == 0) detect_python(*info);
    auto& text = *static_cast<ModuleText*>(context);
    if (has_bound_hooks() && !bind_hooks_in(*info)) text.is_incomplete = true;
    std::uint64_t begin = ~std::uint64_t{0}, end = 0;
    const char* id = nullptr;
    std::size_t id_bytes = 0;
    for (int k = 0; k < info->dlpi_phnum; ++k) {
        const ElfW(Phdr) & segment = info->dlpi_phdr[k];
        const std::uint64_t address = info->dlpi_addr + segment.p_vaddr;
        if (segment.p_type == PT_LOAD) {
            if (address < begin) begin = address;
            if (address + segment.p_memsz > end) end = address + segment.p_memsz;
        }
        if (segment.p_type != PT_NOTE || id != nullptr) continue;
        for (std::uint64_t note = address; note + sizeof(ElfW(Nhdr)) < address + segment.p_memsz;) {
            const auto* note_header = reinterpret_cast<const ElfW(Nhdr)*>(note);
            const std::uint64_t name = note + sizeof *note_header,
                                descriptor = name + ((note_header->n_namesz + 3) & ~3u);
            if (note_header->n_type == NT_GNU_BUILD_ID && note_header->n_namesz == 4 &&
                memcmp(reinterpret_cast<const void*>(name), "GNU", 4) == 0) {
                id = reinterpret_cast<const char*>(descriptor);
                id_bytes = note_header->n_descsz;
                break;
            }
            note = descriptor + ((note_header->n_descsz + 3) & ~3u);
        }
    }
    text.add_hex(info->dlpi_addr);
    text.add(" ");
    text.add_hex(begin);
    text.add(" ");
    text.add_hex(end);
    text.add(" ");
    if (id == nullptr) text.add("-");
    for (std::size_t k = 0; k < id_bytes; ++k) {
        const char digits[3] = {"0123456789abcdef"[static_cast<unsigned char>(id[k]) >> 4],
                                "0123456789abcdef"[id[k] & 15], 0};
        text.add(digits);
    }
    text.add(" ");
    if (info->dlpi_name[0] != 0) {
        text.add(info->dlpi_name);
    } else {
        static char self_path[PATH_MAX];
        const ssize_t n = readlink("/proc/self/exe", self_path, sizeof self_path - 1);
        self_path[n > 0 ? n : 0] = 0;
        text.add(self_path);
    }
    text.add("\n");
    return 0;
}

int detect_python_in_object(dl_phdr_info* info, std::size_t, void*) {
    detect_python(*info);
    return 0;
}

int read_change_count(dl_phdr_info* info, std::size_t, void* context) {
    *static_cast<unsigned long long*>(context) = info->dlpi_adds + info->dlpi_subs;
    return 1;  // every object has the same counts
}

}  // namespace

void invalidate_modules() { objects_seen.store(0, std::memory_order_relaxed); }

void check_new_code(Thread& thread) {
    const std::uint64_t rules = thread.unwinder->counts().rules;
    if (rules == thread.rules_at_list) return;
    thread.rules_at_list = rules;
    const ErrnoGuard errno_guard;
    if (__builtin_expect(python_pending.load(std::memory_order_relaxed), 0))
        dl_iterate_phdr(detect_python_in_object, nullptr);
    if (objects_seen.load(std::memory_order_relaxed) == 0)
        return;  // the list is recorded with the next buffer
    record_modules(thread);
}

// dlopen is not hooked, since its search path depends on the caller. New objects are detected when
// their code is on a stack for the first time, and before any object is unloaded.
void record_modules(Thread& thread) {
    unsigned long long changes = 0;
    dl_iterate_phdr(read_change_count, &changes);
    if (objects_seen.exchange(changes, std::memory_order_acq_rel) == changes) return;
    static char list_buffer[max_list_bytes];
    static std::atomic_flag is_writing;
    // Another thread is recording the list, and may have begun before the last change.
    if (is_writing.test_and_set(std::memory_order_acquire)) {
        invalidate_modules();
        return;
    }
    ModuleText text{list_buffer, list_buffer + sizeof list_buffer};
    dl_iterate_phdr(write_module, &text);
    if (text.is_incomplete) invalidate_modules();
    const std::size_t bytes = static_cast<std::size_t>(text.cursor - list_buffer);
    // The list is recorded in pieces of whole lines, since a buffer may be nearly full.
    for (std::size_t offset = 0; offset < bytes;) {
        std::size_t end = std::min(bytes, offset + max_text_bytes);
        while (end < bytes && end > offset && list_buffer[end - 1] != '\n') --end;
        record_text(thread, Kind::modules, list_buffer + offset, end - offset);
        offset = end;
    }
    report_unsupported_python(thread);
    is_writing.clear(std::memory_order_release);
}

}  // namespace assay::heap
