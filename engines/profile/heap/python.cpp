// Reads the frames of CPython from the interpreter's structures and joins them with C stacks.
#include "profile/heap/python.hpp"

#include <string.h>

#include <algorithm>
#include <atomic>

#include "profile/heap/exports.hpp"
#include "profile/heap/hooks.hpp"
#include "profile/heap/object.hpp"
#include "profile/heap/process.hpp"

namespace assay::heap {

std::atomic<bool> python_ready{false}, python_pending{false};

namespace {

using stack::ReadablePages;
using stack::StackId;

// Offsets in the interpreter's structures (64-bit builds with the GIL), determined with offsetof
// from its headers cpython/pystate.h, internal/pycore_frame.h, cpython/code.h and
// cpython/unicodeobject.h.
struct Layout {
    std::uint32_t version;  // major and minor: the upper half of PY_VERSION_HEX
    // PyThreadState: its thread (pthread_self), its _PyCFrame; in that the innermost frame and the
    // outer _PyCFrame. From 3.13 on `current` is in PyThreadState.
    std::uint32_t thread, cframe, current, outer_cframe;
    // _PyInterpreterFrame; flag: is_entry, or owner.
    std::uint32_t code, previous, instruction, flag;
    // PyCodeObject
    std::uint32_t first_line, filename, name, qualname, bytecode;
    // The characters of a string: after PyASCIIObject, or after PyCompactUnicodeObject if not all
    // are ASCII.
    std::uint32_t ascii, compact;
};
constexpr std::uint32_t absent = ~std::uint32_t{0};
constexpr Layout layouts[] = {
    {0x030b, 152, 56, 8, 16, 32, 48, 56, 68, 72, 112, 120, 128, 184, 48, 72},
    {0x030c, 136, 56, 0, absent, 0, 8, 56, 70, 68, 112, 120, 128, 192, 40, 56},
    {0x030d, 152, absent, 72, absent, 0, 8, 56, 70, 68, 112, 120, 128, 200, 40, 56},
};
// Offsets that are the same in all versions. In bytes: the type in PyObject; a string's length,
// hash and state; a code object's length, in instructions of 2 bytes; a bytes object's content; the
// line table of a code object, after its qualified name. In bits of the state: kind (3 bits),
// compact and ascii (1 bit each).
constexpr std::uint32_t type_offset = 8, length_offset = 16, hash_offset = 24, state_offset = 32,
                        content_offset = 32, line_table_offset = 8, kind_bit = 2, compact_bit = 5,
                        ascii_bit = 6;
// What of a string is read besides its characters.
constexpr std::uint64_t string_head_bytes = 40;
// The outermost Python frame that a C frame runs: 3.11 marks it (is_entry); later versions put a
// frame without code outside of it, on the C stack (FRAME_OWNED_BY_CSTACK).
constexpr std::uint32_t entry_frame = 1, c_stack_frame = 3;
// From 3.13 on _PyRuntime begins with _Py_DebugOffsets: cookie 8, version 8, free-threaded 8.
constexpr std::uint32_t without_gil_offset = 16;

constexpr std::uint64_t hash_multiplier = 0x9e3779b97f4a7c15ull;

struct Interpreter {
    const Layout* layout;
    bool has_c_stack_frames;
    void* (*get_thread_state)();   // the calling thread's PyThreadState
    void* (*get_current_state)();  // the PyThreadState that holds the GIL; null for none
    int (*is_finalizing)();
    int (*line_of)(void* code, int offset);
    std::uint64_t code_type, string_type;
};
Interpreter python;
// PY_VERSION_HEX of an unsupported interpreter; 1: before 3.11.
std::uint32_t unsupported_version = 0;
std::atomic<bool> is_unsupported_reported{false};
std::atomic<int> unloading{0};  // number of objects that are being unloaded

// An open-addressing hash set of the recorded addresses of C frames that run Python frames.
constexpr std::size_t max_eval_frames = 1024;  // an interpreter has some 200
std::atomic<std::uint64_t> eval_frames[max_eval_frames];

std::uint64_t load64(std::uint64_t address) {
    return *reinterpret_cast<const std::uint64_t*>(address);
}
std::uint32_t load32(std::uint64_t address) {
    return *reinterpret_cast<const std::uint32_t*>(address);
}
std::uint32_t load8(std::uint64_t address) {
    return *reinterpret_cast<const std::uint8_t*>(address);
}

// Writes a line of text, truncated at the end of its buffer.
struct Line {
    char* cursor;
    char* end;

    void put(char c) {
        if (cursor < end) *cursor++ = c;
    }
    void put(const char* text) {
        while (*text != 0) put(*text++);
    }
    void put_number(std::uint64_t value, unsigned base) {
        char digits[24];
        int n = 0;
        do digits[n++] = "0123456789abcdef"[value % base];
        while ((value /= base) != 0);
        while (n > 0) put(digits[--n]);
    }
    // Writes a character as UTF-8.
    void put_character(std::uint32_t c) {
        if (c < 0x20 || c == 0x7f) return put('?');
        if (c < 0x80) return put(static_cast<char>(c));
        const int continuation_bytes = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        if (end - cursor < continuation_bytes + 1) return;
        constexpr std::uint32_t lead_bytes[] = {0, 0xc0, 0xe0, 0xf0};
        put(static_cast<char>(lead_bytes[continuation_bytes] | c >> (6 * continuation_bytes)));
        for (int k = continuation_bytes - 1; k >= 0; --k)
            put(static_cast<char>(0x80 | (c >> (6 * k) & 0x3f)));
    }
    // Writes a Python string, at most its last `max_characters`; "?" for one that cannot be read.
    void put_string(ReadablePages& pages, std::uint64_t string, std::uint64_t max_characters) {
        if (!pages.contain(string, string_head_bytes)) return put('?');
        const std::uint32_t state = load32(string + state_offset), size = state >> kind_bit & 7;
        if (load64(string + type_offset) != python.string_type || (state >> compact_bit & 1) == 0)
            return put('?');
        const std::uint64_t characters =
            string +
            ((state >> ascii_bit & 1) != 0 ? python.layout->ascii : python.layout->compact);
        const std::uint64_t length = load64(string + length_offset),
                            first = length - std::min(length, max_characters);
        if (!pages.contain(characters + first * size, (length - first + 1) * size)) return put('?');
        for (std::uint64_t k = first; k < length; ++k) {
            const std::uint64_t c = characters + k * size;
            std::uint16_t utf16 = 0;
            memcpy(&utf16, reinterpret_cast<const void*>(c), sizeof utf16);
            put_character(size == 1 ? load8(c) : size == 2 ? utf16 : load32(c));
        }
    }
};

std::uint64_t hash_of(const char* text, std::size_t bytes) {
    std::uint64_t h = bytes * hash_multiplier;
    for (std::size_t k = 0; k < bytes; k += sizeof h) {
        std::uint64_t chunk = 0;
        memcpy(&chunk, text + k, std::min(sizeof chunk, bytes - k));
        h = (h ^ chunk) * hash_multiplier;
        h ^= h >> 29;
    }
    return h;
}

constexpr std::uint64_t no_identity = 0;

// Whether this is a code object with all that compute_identity() reads.
bool can_identify(ReadablePages& pages, std::uint64_t code) {
    const Layout& layout = *python.layout;
    if (!pages.contain(code, layout.bytecode) || load64(code + type_offset) != python.code_type)
        return false;
    const std::uint64_t file = load64(code + layout.filename);
    return pages.contain(load64(code + layout.name), string_head_bytes) &&
           pages.contain(file, string_head_bytes) &&
           pages.contain(file + string_head_bytes, load64(file + length_offset) + layout.ascii);
}

// Whether this instruction is of the code object, whose line table can be read.
bool can_find_line(ReadablePages& pages, std::uint64_t code, std::uint64_t instruction) {
    const Layout& layout = *python.layout;
    // A frame that has not begun is one instruction before the first.
    const std::uint64_t end = 2 * (load64(code + length_offset) + 1);
    const std::uint64_t table = load64(code + layout.qualname + line_table_offset);
    return instruction + 2 - (code + layout.bytecode) <= end &&
           pages.contain(table, content_offset) &&
           pages.contain(table + content_offset, load64(table + length_offset) + 1);
}

// Computes a value that distinguishes a code object from another one at the same address, with a
// few loads: from Python's hash of its name, and from the length and the last characters of its
// file name.
std::uint64_t compute_identity(std::uint64_t code) {
    const Layout& layout = *python.layout;
    const std::uint64_t file = load64(code + layout.filename),
                        length = load64(file + length_offset);
    if (file == load64(code + layout.qualname)) return no_identity;
    std::uint64_t end;
    // May begin in the string's header.
    memcpy(&end, reinterpret_cast<const void*>(file + layout.ascii + length - sizeof end),
           sizeof end);
    std::uint64_t h = load64(load64(code + layout.name) + hash_offset) * hash_multiplier;
    h = (h ^ h >> 32 ^ load64(code + layout.qualname)) * hash_multiplier;
    h = (h ^ h >> 32 ^ file) * hash_multiplier;
    h = (h ^ h >> 32 ^ end) * hash_multiplier;
    h = (h ^ h >> 32 ^ code) * hash_multiplier;
    h ^= length << 32 ^ load32(code + layout.first_line);
    return h != no_identity ? h : 1;
}

void record_eval_frame(Thread& thread, std::uint64_t address) {
    for (std::size_t k = 0, slot = (address * hash_multiplier) >> 54; k < max_eval_frames;
         ++k, slot = (slot + 1) % max_eval_frames) {
        std::uint64_t recorded = eval_frames[slot].load(std::memory_order_relaxed);
        if (recorded == address) return;
        if (recorded != 0) continue;
        if (!eval_frames[slot].compare_exchange_strong(recorded, address,
                                                       std::memory_order_relaxed)) {
            if (recorded == address) return;
            continue;
        }
        char buffer[32];
        Line line{buffer, buffer + sizeof buffer};
        line.put("eval ");
        line.put_number(address, 16);
        line.put('\n');
        return record_text(thread, Kind::python, buffer,
                           static_cast<std::size_t>(line.cursor - buffer));
    }
}

template <class F>
bool find_symbol(F& target, const Exports& exports, const char* name) {
    target = reinterpret_cast<F>(exports.find(name));
    return target != F{};
}

// Finds the interpreter's functions. Some have another name in earlier versions.
bool find_functions(Interpreter& target, const Exports& exports) {
    const auto find_any = [&](auto& function, const char* name, const char* earlier) {
        return find_symbol(function, exports, name) || find_symbol(function, exports, earlier);
    };
    return find_symbol(target.get_thread_state, exports, "PyGILState_GetThisThreadState") &&
           find_symbol(target.line_of, exports, "PyCode_Addr2Line") &&
           find_any(target.get_current_state, "PyThreadState_GetUnchecked",
                    "_PyThreadState_UncheckedGet") &&
           find_any(target.is_finalizing, "Py_IsFinalizing", "_Py_IsFinalizing") &&
           find_symbol(target.code_type, exports, "PyCode_Type") &&
           find_symbol(target.string_type, exports, "PyUnicode_Type");
}

bool has_gil(const Layout& layout, const Exports& exports) {
    if (layout.cframe != absent) return true;
    const std::uint64_t runtime = exports.find("_PyRuntime");
    return runtime != 0 && load64(runtime + without_gil_offset) == 0;
}

// Callback of dl_iterate_phdr: whether the object contains the address.
int object_contains(dl_phdr_info* object, std::size_t, void* address) {
    const std::uint64_t offset = reinterpret_cast<std::uint64_t>(address) - object->dlpi_addr;
    for (int k = 0; k < object->dlpi_phnum; ++k)
        if (const auto& segment = object->dlpi_phdr[k];
            segment.p_type == PT_LOAD && offset - segment.p_vaddr < segment.p_memsz)
            return 1;
    return 0;
}

// Whether this thread holds the GIL. Its PyThreadState is then valid.
bool holds_gil(const Thread& thread) {
    const auto current = reinterpret_cast<std::uint64_t>(python.get_current_state());
    if (current == 0 || thread.python_frames == nullptr ||
        current != thread.python_frames->last_state)
        return false;
    return load64(current + python.layout->thread) == thread.pthread_id;
}

// The thread's PyThreadState; 0 if it runs no Python, or if the state may have been freed.
std::uint64_t find_state(const Thread& thread) {
    // An exiting interpreter first frees the states of the threads that it does not wait for.
    if (thread.serial != 0 && python.is_finalizing() != 0) return 0;
    return reinterpret_cast<std::uint64_t>(python.get_thread_state());
}

}  // namespace

void detect_python(const dl_phdr_info& object) {
    if (python.layout != nullptr) return;
    const Exports exports(object);
    const std::uint64_t version_address = exports.find("Py_Version");
    const std::uint32_t version = version_address != 0           ? load32(version_address)
                                  : exports.find("Py_Main") != 0 ? 1
                                                                 : 0;
    if (version == 0) return;
    const bool is_early = !is_relocated(object);
    python_pending.store(is_early, std::memory_order_relaxed);
    if (is_early) return;
    Interpreter interpreter{};
    for (const Layout& layout : layouts)
        if (layout.version == version >> 16) interpreter.layout = &layout;
    if (interpreter.layout == nullptr || !has_gil(*interpreter.layout, exports) ||
        !find_functions(interpreter, exports)) {
        unsupported_version = version;
        return;
    }
    interpreter.has_c_stack_frames = interpreter.layout->outer_cframe == absent;
    python = interpreter;
    unsupported_version = 0;
    // Invalidates memoised C stacks. They are walked again, which finds the frames that run Python.
    stack::generation.fetch_add(1, std::memory_order_release);
    python_ready.store(true, std::memory_order_release);
}

void report_unsupported_python(Thread& thread) {
    if (unsupported_version == 0 ||
        is_unsupported_reported.exchange(true, std::memory_order_relaxed))
        return;
    char buffer[64];
    Line line{buffer, buffer + sizeof buffer};
    line.put("unread ");
    if (unsupported_version == 1) {
        line.put("3.10 or older");
    } else {
        line.put_number(unsupported_version >> 24, 10);
        line.put('.');
        line.put_number(unsupported_version >> 16 & 0xff, 10);
    }
    line.put('\n');
    record_text(thread, Kind::python, buffer, static_cast<std::size_t>(line.cursor - buffer));
}

void pause_python() {
    unloading.fetch_add(1, std::memory_order_relaxed);
    python_ready.store(false, std::memory_order_release);
}

void resume_python() {
    if (python.layout != nullptr &&
        dl_iterate_phdr(object_contains, reinterpret_cast<void*>(python.get_thread_state)) == 0)
        python = {};
    const bool is_last = unloading.fetch_sub(1, std::memory_order_relaxed) == 1;
    if (is_last && python.layout != nullptr) python_ready.store(true, std::memory_order_release);
}

void reset_python() {
    is_unsupported_reported.store(false, std::memory_order_relaxed);
    for (auto& address : eval_frames) address.store(0, std::memory_order_relaxed);
}

StackId add_python_frames(Thread& thread, StackId native, stack::Extension* extension) {
    const std::uint64_t state = __builtin_expect(holds_gil(thread), 1)
                                    ? thread.python_frames->last_state
                                    : find_state(thread);
    if (state == 0 || native == stack::no_stack) return native;
    if (thread.python_frames == nullptr && (thread.python_frames = static_cast<PythonFrames*>(
                                                map_zeroed(sizeof(PythonFrames)))) == nullptr)
        return native;
    PythonFrames& frames = *thread.python_frames;
    frames.last_state = state;
    frames.sync(stack::generation.load(std::memory_order_relaxed));
    const std::uint64_t innermost = frames.innermost_frame(state);
    if (innermost == 0) return native;
    const StackId id = frames.join_stacks(thread, native, extension, innermost);
    if (extension == nullptr && id != native)
        frames.record_eval_frames(thread, thread.unwinder->cached_stack(), state);
    return id;
}

std::uint64_t PythonFrames::innermost_frame(std::uint64_t state) {
    const Layout& layout = *python.layout;
    if (layout.cframe == absent) return load64(state + layout.current);
    const std::uint64_t cframe = load64(state + layout.cframe) + layout.current;
    return pages_.contain(cframe, sizeof cframe) ? load64(cframe) : 0;
}

void PythonFrames::sync(std::uint32_t generation) {
    if (pages_.sync(program_break())) depth_ = 0;
    if (generation == generation_) return;
    const bool is_fresh = generation_ == 0;  // clearing would make untouched memory resident
    generation_ = generation;
    if (is_fresh) return;
    depth_ = 0;
    memset(steps_, 0, sizeof steps_);
    memset(joined_stacks_, 0, sizeof joined_stacks_);
}

// Whether all of the frame that is used here can be read.
inline bool PythonFrames::can_read_frame(std::uint64_t frame) {
    constexpr std::uint64_t used_bytes = 72;
    return (frame & 7) == 0 && pages_.contain(frame, used_bytes);
}

// Walks from `frame` outwards to a cached frame. Returns the index of that frame, 0 if there is
// none. The frames before it are in chain_; none if one of them cannot be read.
std::uint32_t PythonFrames::walk_to_cached(std::uint64_t frame) {
    const std::uint32_t previous = python.layout->previous;
    chain_length_ = 0;
    for (; frame != 0 && chain_length_ < max_frames; frame = load64(frame + previous)) {
        for (std::uint32_t k = depth_; k > 0 && depth_ - k < max_search_frames; --k)
            if (cached_[k].frame == frame) return k;
        if (!can_read_frame(frame)) return chain_length_ = 0;
        chain_[chain_length_++] = frame;
    }
    return 0;
}

// Whether the chain from cached frame `first_cached` outwards is unchanged. Sets `unchanged_frames`
// to the number of frames, from the outermost inwards, that still run the same instruction.
inline bool PythonFrames::compare_cached(std::uint32_t first_cached,
                                         std::uint32_t& unchanged_frames) const {
    const Layout& layout = *python.layout;
    const std::uint32_t previous = layout.previous, instruction = layout.instruction,
                        flag = layout.flag;
    unchanged_frames = first_cached;
    for (std::uint32_t k = first_cached; k > 0; --k) {
        // The frame can be read, because its callee still points to it. Equal instruction addresses
        // mean an equal code object.
        const CachedFrame& cached_frame = cached_[k];
        const std::uint64_t difference =
            (load64(cached_frame.frame + instruction) ^ cached_frame.instruction) |
            (load8(cached_frame.frame + flag) ^ cached_frame.flag);
        if (difference != 0) unchanged_frames = k - 1;
        if (__builtin_expect(load64(cached_frame.frame + previous) != cached_[k - 1].frame, 0))
            return false;
    }
    return true;
}

// Handles the usual case: the same frames as at the last event, of which only the innermost has
// advanced.
inline bool PythonFrames::has_only_line_changed(std::uint64_t innermost) {
    const Layout& layout = *python.layout;
    CachedFrame& cached_frame = cached_[depth_];
    if (depth_ == 0 || cached_frame.frame != innermost ||
        load64(innermost + layout.previous) != cached_[depth_ - 1].frame)
        return false;
    const std::uint64_t difference = (load64(innermost + layout.code) ^ cached_frame.code) |
                                     (load8(innermost + layout.flag) ^ cached_frame.flag);
    std::uint32_t unchanged_frames = 0;
    if (difference != 0 || !compare_cached(depth_ - 1, unchanged_frames) ||
        unchanged_frames != depth_ - 1)
        return false;
    cached_frame.instruction = load64(innermost + layout.instruction);
    return true;
}

inline StackId PythonFrames::join_stacks(Thread& thread, StackId native,
                                         stack::Extension* extension, std::uint64_t innermost) {
    const auto invalidate = [&] {
        depth_ = 0;
        return native;
    };
    if (!has_only_line_changed(innermost) && !update_frames(thread, innermost)) return invalidate();
    const CachedFrame& outer = cached_[depth_ - 1];
    CachedFrame& cached_frame = cached_[depth_];
    const std::uint64_t frame_key =
        step_key(cached_frame, outer) ^ (std::uint64_t{outer.id} + 1) * hash_multiplier;
    if (extension != nullptr && __builtin_expect(extension->key == frame_key, 1)) {
        cached_frame.id = extension->inner;
        return extension->id;
    }
    const std::uint64_t key = (frame_key ^ std::uint64_t{native} << 32) * hash_multiplier;
    JoinedStack& joined_stack = joined_stacks_[key >> (64 - joined_bits)];
    if (__builtin_expect(joined_stack.key != key, 0)) {
        const StackId python_stack = step(thread, cached_frame, outer);
        if (python_stack == stack::no_stack) return invalidate();
        joined_stack = {key, python_stack,
                        stack_tree.child(native, with_tag(joined_tag, python_stack))};
    }
    if (extension != nullptr) *extension = {frame_key, joined_stack.id, joined_stack.python};
    cached_frame.id = joined_stack.python;
    return joined_stack.id;
}

// Updates the cached frames up to the innermost, whose stack join_stacks() looks up. Returns false
// if the tree is full or a frame cannot be read.
bool PythonFrames::update_frames(Thread& thread, std::uint64_t innermost) {
    std::uint32_t unchanged = walk_to_cached(innermost), unchanged_frames = 0;
    if (unchanged != 0 &&
        (!compare_cached(unchanged, unchanged_frames) || unchanged + chain_length_ > max_frames)) {
        depth_ = unchanged_frames = 0;  // the outer frames differ
        unchanged = walk_to_cached(innermost);
    }
    if (unchanged + chain_length_ == 0) return false;
    // Adds the frames that have advanced, then the new frames, the outermost first.
    depth_ = std::min(unchanged_frames, unchanged + chain_length_ - 1);
    for (;;) {
        const bool was_cached = depth_ < unchanged;
        if (!push(was_cached ? cached_[depth_ + 1].frame : chain_[--chain_length_], was_cached))
            return false;
        if (depth_ >= unchanged && chain_length_ == 0) return true;
        CachedFrame& cached_frame = cached_[depth_];
        cached_frame.id = step(thread, cached_frame, cached_[depth_ - 1]);
        if (cached_frame.id == stack::no_stack && cached_frame.identity != no_identity)
            return false;
    }
}

// Adds the next frame inwards. Returns false if the frame has no code object.
bool PythonFrames::push(std::uint64_t frame, bool was_cached) {
    const Layout& layout = *python.layout;
    CachedFrame& cached_frame = cached_[++depth_];
    const std::uint64_t code = load64(frame + layout.code);
    was_cached &= cached_frame.code == code;
    cached_frame.frame = frame;
    cached_frame.instruction = load64(frame + layout.instruction);
    cached_frame.code = code;
    cached_frame.flag = load8(frame + layout.flag);
    if (python.has_c_stack_frames && cached_frame.flag == c_stack_frame) {
        cached_frame.identity = no_identity;
    } else if (!was_cached) {
        if (!can_identify(pages_, code)) return false;
        cached_frame.identity = compute_identity(code);
    }
    return true;
}

// A key that distinguishes the callees of one frame.
std::uint64_t PythonFrames::step_key(const CachedFrame& cached_frame,
                                     const CachedFrame& outer) const {
    const bool is_entry =
        python.has_c_stack_frames ? outer.flag == c_stack_frame : cached_frame.flag == entry_frame;
    return cached_frame.identity == no_identity
               ? no_identity
               : (cached_frame.instruction ^ cached_frame.identity) << 1 | is_entry;
}

// The Python stack that ends with this frame; no_stack if the tree is full. Frames without a
// function, which the interpreter adds around __init__ or on the C stack, are skipped.
StackId PythonFrames::step(Thread& thread, const CachedFrame& cached_frame,
                           const CachedFrame& outer) {
    if (cached_frame.identity == no_identity) return outer.id;
    const std::uint64_t key = step_key(cached_frame, outer);
    Step& cached =
        steps_[((key ^ std::uint64_t{outer.id} << 33) * hash_multiplier) >> (64 - step_bits)];
    if (cached.key == key && cached.parent == outer.id) return cached.id;
    const StackId line_id = record_line(thread, cached_frame.code, cached_frame.instruction);
    if (line_id == stack::no_stack) return stack::no_stack;
    cached = {key, outer.id,
              stack_tree.child(outer.id, with_tag(frame_tag, line_id | (key & 1 ? entry_bit : 0)))};
    return cached.id;
}

// Returns the number of a file, line and function, independent of the code object's address.
StackId PythonFrames::record_line(Thread& thread, std::uint64_t code, std::uint64_t instruction) {
    constexpr std::size_t prefix_room = 32, max_name = 300, max_path = 1000;
    const Layout& layout = *python.layout;
    const int line = can_find_line(pages_, code, instruction)
                         ? python.line_of(reinterpret_cast<void*>(code),
                                          static_cast<int>(instruction - (code + layout.bytecode)))
                         : 0;
    char* const body = text_ + prefix_room;
    Line text{body, text_ + sizeof text_ - 1};
    text.put_number(line > 0 ? static_cast<std::uint64_t>(line) : load32(code + layout.first_line),
                    10);
    text.put(' ');
    text.put_string(pages_, load64(code + layout.filename), max_path);
    text.put('\t');
    text.put_string(pages_, load64(code + layout.qualname), max_name);
    *text.cursor++ = '\n';
    const auto bytes = static_cast<std::size_t>(text.cursor - body);
    const StackId next = stack_tree.size(),
                  number =
                      stack_tree.child(stack::no_stack, with_tag(line_tag, hash_of(body, bytes)));
    if (number < next) return number;
    Line prefix{text_, body};
    prefix.put("place ");
    prefix.put_number(number, 10);
    prefix.put(' ');
    const auto prefix_bytes = static_cast<std::size_t>(prefix.cursor - text_);
    memmove(body - prefix_bytes, text_, prefix_bytes);
    record_text(thread, Kind::python, body - prefix_bytes, prefix_bytes + bytes);
    return number;
}

// The address on the C stack of the interpreter data of the next C frame, from the innermost
// outwards; 0 after the last.
std::uint64_t PythonFrames::next_c_frame(std::uint64_t& cframe, std::uint32_t& index,
                                         const stack::Bounds& bounds) {
    if (!python.has_c_stack_frames) {
        // The last one is in the thread state, not on the C stack.
        const std::uint64_t current = cframe;
        if (!bounds.contains(current) || !pages_.contain(current, python.layout->outer_cframe + 8))
            return 0;
        cframe = load64(current + python.layout->outer_cframe);
        return current;
    }
    while (index > 0)
        if (const CachedFrame& cached_frame = cached_[index--]; cached_frame.flag == c_stack_frame)
            return bounds.contains(cached_frame.frame) ? cached_frame.frame : 0;
    return 0;
}

void PythonFrames::record_eval_frames(Thread& thread, const stack::StackCache& cache,
                                      std::uint64_t state) {
    const stack::Bounds& bounds = thread.unwinder->bounds();
    std::uint64_t cframe = python.has_c_stack_frames ? 0 : load64(state + python.layout->cframe);
    std::uint32_t index = depth_;
    std::uint64_t c_frame_address = next_c_frame(cframe, index, bounds);
    for (std::uint32_t k = cache.frame_count(); k > cache.reused_count() && c_frame_address != 0;) {
        const stack::Frame& frame = cache.frame(k - 1);
        if (const std::uint64_t end = k > 1 ? cache.frame(k - 2).sp : bounds.high;
            c_frame_address >= end) {
            --k;
            continue;
        }
        if (c_frame_address >= frame.sp) record_eval_frame(thread, frame.address());
        c_frame_address = next_c_frame(cframe, index, bounds);
    }
}

}  // namespace assay::heap
