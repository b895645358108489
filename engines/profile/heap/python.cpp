#include "profile/heap/python.hpp"

#include <string.h>

#include <algorithm>
#include <atomic>

#include "profile/heap/exports.hpp"
#include "profile/heap/object.hpp"
#include "profile/heap/process.hpp"

namespace assay::heap {

std::atomic<bool> reads_python{false}, awaits_python{false};

namespace {

using stack::StackId;

// Offsets in the interpreter's structures, 64 bits, with the GIL, as offsetof gives them for its
// own headers (cpython/pystate.h, internal/pycore_frame.h, cpython/code.h,
// cpython/unicodeobject.h).
struct Layout {
    std::uint32_t version;  // major and minor: the upper half of PY_VERSION_HEX
    // PyThreadState: whose it is (pthread_self); its _PyCFrame, and in that the innermost frame and
    // the one further out; or the frame itself.
    std::uint32_t thread, cframe, current, outer_cframe;
    // _PyInterpreterFrame; flag: is_entry, or owner.
    std::uint32_t code, previous, instruction, flag;
    // PyCodeObject
    std::uint32_t first_line, filename, name, qualname, bytecode;
    // Where the characters of a string begin, if all are ASCII and if not: PyASCIIObject,
    // PyCompactUnicodeObject.
    std::uint32_t ascii, compact;
};
constexpr std::uint32_t none = ~std::uint32_t{0};
constexpr Layout layouts[] = {
    {0x030b, 152, 56, 8, 16, 32, 48, 56, 68, 72, 112, 120, 128, 184, 48, 72},
    {0x030c, 136, 56, 0, none, 0, 8, 56, 70, 68, 112, 120, 128, 192, 40, 56},
    {0x030d, 152, none, 72, none, 0, 8, 56, 70, 68, 112, 120, 128, 200, 40, 56},
};
// Alike in all of them: PyObject, and the string's length, hash and state (kind 3 bits, compact,
// ascii).
constexpr std::uint32_t type_at = 8, length_at = 16, hash_at = 24, state_at = 32, kind_at = 2,
                        compact_at = 5, ascii_at = 6;
// 3.11 marks the outermost Python frame that a C frame runs (is_entry); later ones have in its
// place one more, which lies on the C stack (FRAME_OWNED_BY_CSTACK) and runs nothing.
constexpr std::uint32_t entry_frame = 1, c_stack_frame = 3;
// _Py_DebugOffsets, with which _PyRuntime begins from 3.13 on: a cookie, the version, and whether
// there is no GIL.
constexpr std::uint32_t without_gil_at = 16;

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ull;

struct Interpreter {
    const Layout* layout;
    bool has_c_stack_frames;
    void* (*this_thread)();  // its state
    void* (*current)();  // that which has the interpreter's lock, or of this thread, if it has it;
                         // null for none
    int (*is_finalizing)();
    int (*line_of)(void* code, int offset);
    std::uint64_t code_type, string_type;
};
Interpreter python;
std::uint32_t unread = 0;  // PY_VERSION_HEX of one that is not understood; 1: older than it says
std::atomic<bool> is_unread_told{false};
std::atomic<int> unloading{0};  // objects, just now

// Addresses of C frames that run Python frames, as far as they have been told.
constexpr std::size_t eval_slots = 1024;  // an interpreter has some two hundred
std::atomic<std::uint64_t> evals[eval_slots];

std::uint64_t word(std::uint64_t at) { return *reinterpret_cast<const std::uint64_t*>(at); }
std::uint32_t half(std::uint64_t at) { return *reinterpret_cast<const std::uint32_t*>(at); }
std::uint32_t byte(std::uint64_t at) { return *reinterpret_cast<const std::uint8_t*>(at); }

// A line of text, cut off where it has no room.
struct Line {
    char* at;
    char* end;

    void put(char c) {
        if (at < end) *at++ = c;
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
    // In UTF-8.
    void put_character(std::uint32_t c) {
        if (c < 0x20 || c == 0x7f) return put('?');
        if (c < 0x80) return put(static_cast<char>(c));
        const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        if (end - at < more + 1) return;
        constexpr std::uint32_t leads[] = {0, 0xc0, 0xe0, 0xf0};
        put(static_cast<char>(leads[more] | c >> (6 * more)));
        for (int k = more - 1; k >= 0; --k) put(static_cast<char>(0x80 | (c >> (6 * k) & 0x3f)));
    }
    // A string of Python's; no more than so many of its characters, its last ones.
    void put_string(std::uint64_t string, std::uint64_t most) {
        const std::uint32_t state = half(string + state_at), size = state >> kind_at & 7;
        if (word(string + type_at) != python.string_type || (state >> compact_at & 1) == 0)
            return put('?');
        const std::uint64_t characters =
            string + ((state >> ascii_at & 1) != 0 ? python.layout->ascii : python.layout->compact);
        const std::uint64_t length = word(string + length_at);
        for (std::uint64_t k = length - std::min(length, most); k < length; ++k) {
            const std::uint64_t c = characters + k * size;
            std::uint16_t two = 0;
            memcpy(&two, reinterpret_cast<const void*>(c), sizeof two);
            put_character(size == 1 ? byte(c) : size == 2 ? two : half(c));
        }
    }
};

std::uint64_t hash_of(const char* text, std::size_t bytes) {
    std::uint64_t h = bytes * golden;
    for (std::size_t k = 0; k < bytes; k += sizeof h) {
        std::uint64_t some = 0;
        memcpy(&some, text + k, std::min(sizeof some, bytes - k));
        h = (h ^ some) * golden;
        h ^= h >> 29;
    }
    return h;
}

constexpr std::uint64_t nobody = 0;

// Tells a code object from another that has taken its place, as far as a few loads can: its name by
// that string's own hash, its file by length and last characters.
std::uint64_t identity_of(std::uint64_t code) {
    const Layout& layout = *python.layout;
    const std::uint64_t file = word(code + layout.filename), length = word(file + length_at);
    if (file == word(code + layout.qualname)) return nobody;
    std::uint64_t end;
    memcpy(&end, reinterpret_cast<const void*>(file + layout.ascii + length - sizeof end),
           sizeof end);  // may begin in the head
    std::uint64_t h = word(word(code + layout.name) + hash_at) * golden;
    h = (h ^ h >> 32 ^ word(code + layout.qualname)) * golden;
    h = (h ^ h >> 32 ^ file) * golden;
    h = (h ^ h >> 32 ^ end) * golden;
    h = (h ^ h >> 32 ^ code) * golden;
    h ^= length << 32 ^ half(code + layout.first_line);
    return h != nobody ? h : 1;
}

void note_eval(Thread& thread, std::uint64_t address) {
    for (std::size_t k = 0, at = (address * golden) >> 54; k < eval_slots;
         ++k, at = (at + 1) % eval_slots) {
        std::uint64_t known = evals[at].load(std::memory_order_relaxed);
        if (known == address) return;
        if (known != 0) continue;
        if (!evals[at].compare_exchange_strong(known, address, std::memory_order_relaxed)) {
            if (known == address) return;
            continue;
        }
        char room[32];
        Line line{room, room + sizeof room};
        line.put("eval ");
        line.put_number(address, 16);
        line.put('\n');
        return record_text(thread, Kind::python, room, static_cast<std::size_t>(line.at - room));
    }
}

template <class F>
bool find(F& into, const Exports& exports, const char* name) {
    into = reinterpret_cast<F>(exports.find(name));
    return into != F{};
}

// Some had another name in earlier versions.
bool find_functions(Interpreter& into, const Exports& exports) {
    const auto either = [&](auto& one, const char* name, const char* earlier) {
        return find(one, exports, name) || find(one, exports, earlier);
    };
    return find(into.this_thread, exports, "PyGILState_GetThisThreadState") &&
           find(into.line_of, exports, "PyCode_Addr2Line") &&
           either(into.current, "PyThreadState_GetUnchecked", "_PyThreadState_UncheckedGet") &&
           either(into.is_finalizing, "Py_IsFinalizing", "_Py_IsFinalizing") &&
           find(into.code_type, exports, "PyCode_Type") &&
           find(into.string_type, exports, "PyUnicode_Type");
}

bool has_gil(const Layout& layout, const Exports& exports) {
    if (layout.cframe != none) return true;
    const std::uint64_t runtime = exports.find("_PyRuntime");
    return runtime != 0 && word(runtime + without_gil_at) == 0;
}

// Whether the object has this address.
int holds(dl_phdr_info* object, std::size_t, void* address) {
    const std::uint64_t at = reinterpret_cast<std::uint64_t>(address) - object->dlpi_addr;
    for (int k = 0; k < object->dlpi_phnum; ++k)
        if (const auto& segment = object->dlpi_phdr[k];
            segment.p_type == PT_LOAD && at - segment.p_vaddr < segment.p_memsz)
            return 1;
    return 0;
}

// That which has the interpreter's lock is alive, and mostly it is this thread's.
bool has_lock(const Thread& thread) {
    const auto current = reinterpret_cast<std::uint64_t>(python.current());
    if (current == 0 || thread.python == nullptr || current != thread.python->last_state)
        return false;
    return word(current + python.layout->thread) == thread.pthread;
}

// Where the chain of frames begins; 0: the thread runs no Python, or its state may be gone.
std::uint64_t find_state(const Thread& thread) {
    // The first thing that an ending interpreter does is to free the states of threads that it does
    // not wait for.
    if (thread.serial != 0 && python.is_finalizing() != 0) return 0;
    return reinterpret_cast<std::uint64_t>(python.this_thread());
}

std::uint64_t innermost_of(std::uint64_t state) {
    const Layout& layout = *python.layout;
    const std::uint64_t at = layout.cframe == none ? state : word(state + layout.cframe);
    return at == 0 ? 0 : word(at + layout.current);
}

}  // namespace

void look_for_python(const dl_phdr_info& object) {
    if (python.layout != nullptr) return;
    const Exports exports(object);
    const std::uint64_t told = exports.find("Py_Version");
    const std::uint32_t version = told != 0 ? half(told) : exports.find("Py_Main") != 0 ? 1 : 0;
    if (version == 0) return;
    const bool is_early = !is_relocated(object);
    awaits_python.store(is_early, std::memory_order_relaxed);
    if (is_early) return;
    Interpreter found{};
    for (const Layout& one : layouts)
        if (one.version == version >> 16) found.layout = &one;
    if (found.layout == nullptr || !has_gil(*found.layout, exports) ||
        !find_functions(found, exports)) {
        unread = version;
        return;
    }
    found.has_c_stack_frames = found.layout->outer_cframe == none;
    python = found;
    unread = 0;
    // C stacks that were followed before are followed anew: which of their frames run Python is not
    // known yet.
    stack::generation.fetch_add(1, std::memory_order_release);
    reads_python.store(true, std::memory_order_release);
}

void tell_of_python(Thread& thread) {
    if (unread == 0 || is_unread_told.exchange(true, std::memory_order_relaxed)) return;
    char room[64];
    Line line{room, room + sizeof room};
    line.put("unread ");
    if (unread == 1) {
        line.put("3.10 or older");
    } else {
        line.put_number(unread >> 24, 10);
        line.put('.');
        line.put_number(unread >> 16 & 0xff, 10);
    }
    line.put('\n');
    record_text(thread, Kind::python, room, static_cast<std::size_t>(line.at - room));
}

void leave_python() {
    unloading.fetch_add(1, std::memory_order_relaxed);
    reads_python.store(false, std::memory_order_release);
}

void return_to_python() {
    if (python.layout != nullptr &&
        dl_iterate_phdr(holds, reinterpret_cast<void*>(python.this_thread)) == 0)
        python = {};
    const bool is_last = unloading.fetch_sub(1, std::memory_order_relaxed) == 1;
    if (is_last && python.layout != nullptr) reads_python.store(true, std::memory_order_release);
}

void restart_python() {
    is_unread_told.store(false, std::memory_order_relaxed);
    for (auto& one : evals) one.store(0, std::memory_order_relaxed);
}

StackId with_python(Thread& thread, StackId native, stack::Extension* note) {
    const std::uint64_t state =
        __builtin_expect(has_lock(thread), 1) ? thread.python->last_state : find_state(thread);
    const std::uint64_t innermost = state != 0 ? innermost_of(state) : 0;
    if (innermost == 0 || native == stack::no_stack) return native;
    if (thread.python == nullptr &&
        (thread.python = static_cast<PythonFrames*>(map_zeroed(sizeof(PythonFrames)))) == nullptr)
        return native;
    PythonFrames& frames = *thread.python;
    frames.last_state = state;
    frames.keep_to(stack::generation.load(std::memory_order_relaxed));
    const StackId id = frames.join(thread, native, note, innermost);
    if (note == nullptr)
        frames.learn(thread, thread.unwinder->cached_stack(), state);  // it has just been followed
    return id;
}

void PythonFrames::keep_to(std::uint32_t generation) {
    if (generation == generation_) return;
    const bool is_fresh = generation_ == 0;  // then its memory is better not touched
    generation_ = generation;
    if (is_fresh) return;
    n_ = 0;
    memset(steps_, 0, sizeof steps_);
    memset(joined_, 0, sizeof joined_);
}

// The mark at which the chain from `at` on meets the last one; 0: none. What lies before it is in
// chain_.
std::uint32_t PythonFrames::walk_to_known(std::uint64_t at) {
    const std::uint32_t previous = python.layout->previous;
    taken_ = 0;
    for (; at != 0 && taken_ < most_frames; at = word(at + previous)) {
        for (std::uint32_t k = n_; k > 0 && n_ - k < nearby; --k)
            if (marks_[k].frame == at) return k;
        chain_[taken_++] = at;
    }
    return 0;
}

// Whether the chain still goes from mark `from` outwards as the marks say; `same`: how many of
// them, the outermost first, are as they were.
inline bool PythonFrames::compare(std::uint32_t from, std::uint32_t& same) const {
    const Layout& layout = *python.layout;
    const std::uint32_t previous = layout.previous, instruction = layout.instruction,
                        flag = layout.flag;
    same = from;
    for (std::uint32_t k = from; k > 0; --k) {
        // Its frame is read only since the one further in has just named it. Instructions lie in
        // their code object.
        const Mark& mark = marks_[k];
        const std::uint64_t differs = (word(mark.frame + instruction) ^ mark.instruction) |
                                      (byte(mark.frame + flag) ^ mark.flag);
        if (differs != 0) same = k - 1;
        if (__builtin_expect(word(mark.frame + previous) != marks_[k - 1].frame, 0)) return false;
    }
    return true;
}

// What mostly is the case: the frames are those of the last event, and all but the innermost are
// where they were.
inline bool PythonFrames::has_only_moved_on(std::uint64_t innermost) {
    const Layout& layout = *python.layout;
    Mark& mark = marks_[n_];
    if (n_ == 0 || mark.frame != innermost ||
        word(innermost + layout.previous) != marks_[n_ - 1].frame)
        return false;
    const std::uint64_t differs =
        (word(innermost + layout.code) ^ mark.code) | (byte(innermost + layout.flag) ^ mark.flag);
    std::uint32_t same = 0;
    if (differs != 0 || !compare(n_ - 1, same) || same != n_ - 1) return false;
    mark.instruction = word(innermost + layout.instruction);
    return true;
}

inline StackId PythonFrames::join(Thread& thread, StackId native, stack::Extension* note,
                                  std::uint64_t innermost) {
    const auto forget = [&] {
        n_ = 0;
        return native;
    };
    if (!has_only_moved_on(innermost) && !follow(thread, innermost)) return forget();
    const Mark& outer = marks_[n_ - 1];
    Mark& mark = marks_[n_];
    const std::uint64_t own = key_of(mark, outer) ^ (std::uint64_t{outer.id} + 1) * golden;
    if (note != nullptr && __builtin_expect(note->key == own, 1)) {
        mark.id = note->inner;
        return note->id;
    }
    const std::uint64_t all = (own ^ std::uint64_t{native} << 32) * golden;
    Joined& known = joined_[all >> (64 - joined_bits)];
    if (__builtin_expect(known.all != all, 0)) {
        const StackId python_stack = step(thread, mark, outer);
        if (python_stack == stack::no_stack) return forget();
        known = {all, python_stack, tree.child(native, tagged(joined_tag, python_stack))};
    }
    if (note != nullptr) *note = {own, known.id, known.python};
    mark.id = known.python;
    return known.id;
}

// Up to the innermost frame, whose own number is still to be found. False when the tree is full.
bool PythonFrames::follow(Thread& thread, std::uint64_t innermost) {
    std::uint32_t known = walk_to_known(innermost), same = 0;
    if (known != 0 && (!compare(known, same) || known + taken_ > most_frames)) {
        n_ = same = 0;  // further out it goes another way
        known = walk_to_known(innermost);
    }
    // Frames that have gone on since, and those that are new; the outermost first.
    n_ = std::min(same, known + taken_ - 1);
    for (;;) {
        const bool was_there = n_ < known;
        if (!push(was_there ? marks_[n_ + 1].frame : chain_[--taken_], was_there)) return false;
        if (n_ >= known && taken_ == 0) return true;
        Mark& mark = marks_[n_];
        mark.id = step(thread, mark, marks_[n_ - 1]);
        if (mark.id == stack::no_stack && mark.identity != nobody) return false;
    }
}

// The next frame inwards. One that was there at the last event mostly runs the same code object.
// False when it runs none.
bool PythonFrames::push(std::uint64_t frame, bool was_there) {
    const Layout& layout = *python.layout;
    Mark& mark = marks_[++n_];
    const std::uint64_t code = word(frame + layout.code);
    was_there &= mark.code == code;
    mark.frame = frame;
    mark.instruction = word(frame + layout.instruction);
    mark.code = code;
    mark.flag = byte(frame + layout.flag);
    if (python.has_c_stack_frames && mark.flag == c_stack_frame) {
        mark.identity = nobody;
    } else if (!was_there) {
        if (word(code + type_at) != python.code_type) return false;
        mark.identity = identity_of(code);
    }
    return true;
}

// Tells apart what is below one and the same frame.
std::uint64_t PythonFrames::key_of(const Mark& mark, const Mark& outer) const {
    const bool is_entry =
        python.has_c_stack_frames ? outer.flag == c_stack_frame : mark.flag == entry_frame;
    return mark.identity == nobody ? nobody : (mark.instruction ^ mark.identity) << 1 | is_entry;
}

// The number of the Python stack that ends with this frame; no_stack when the tree is full. What
// the interpreter puts around __init__, or on the C stack, is no function of anybody's.
StackId PythonFrames::step(Thread& thread, const Mark& mark, const Mark& outer) {
    if (mark.identity == nobody) return outer.id;
    const std::uint64_t key = key_of(mark, outer);
    Step& known = steps_[((key ^ std::uint64_t{outer.id} << 33) * golden) >> (64 - step_bits)];
    if (known.key == key && known.parent == outer.id) return known.id;
    const StackId place = name_place(thread, mark.code, mark.instruction);
    if (place == stack::no_stack) return stack::no_stack;
    known = {key, outer.id,
             tree.child(outer.id, tagged(frame_tag, place | (key & 1 ? entry_bit : 0)))};
    return known.id;
}

// What is the same to whoever reads it has the same number, wherever its code lies.
StackId PythonFrames::name_place(Thread& thread, std::uint64_t code, std::uint64_t instruction) {
    constexpr std::size_t head_room = 32, most_name = 300, most_path = 1000;
    const Layout& layout = *python.layout;
    const int line = python.line_of(reinterpret_cast<void*>(code),
                                    static_cast<int>(instruction - (code + layout.bytecode)));
    char* const body = text_ + head_room;
    Line text{body, text_ + sizeof text_ - 1};
    text.put_number(line > 0 ? static_cast<std::uint64_t>(line) : half(code + layout.first_line),
                    10);
    text.put(' ');
    text.put_string(word(code + layout.filename), most_path);
    text.put('\t');
    text.put_string(word(code + layout.qualname), most_name);
    *text.at++ = '\n';
    const auto bytes = static_cast<std::size_t>(text.at - body);
    const StackId next = tree.size(),
                  number = tree.child(stack::no_stack, tagged(place_tag, hash_of(body, bytes)));
    if (number < next) return number;
    Line head{text_, body};
    head.put("place ");
    head.put_number(number, 10);
    head.put(' ');
    const auto head_bytes = static_cast<std::size_t>(head.at - text_);
    memmove(body - head_bytes, text_, head_bytes);
    record_text(thread, Kind::python, body - head_bytes, head_bytes + bytes);
    return number;
}

// The interpreter's own words on its C frames, from the innermost outwards, as addresses on the
// stack; 0 after the last.
std::uint64_t PythonFrames::c_frame(std::uint64_t& cframe, std::uint32_t& mark,
                                    const stack::Bounds& bounds) const {
    if (!python.has_c_stack_frames) {
        const std::uint64_t at =
            cframe;  // that of the thread's state is the last, and not on the stack
        if (!bounds.contains(at)) return 0;
        cframe = word(at + python.layout->outer_cframe);
        return at;
    }
    while (mark > 0)
        if (const Mark& one = marks_[mark--]; one.flag == c_stack_frame)
            return bounds.contains(one.frame) ? one.frame : 0;
    return 0;
}

void PythonFrames::learn(Thread& thread, const stack::StackCache& cache, std::uint64_t state) {
    const stack::Bounds& bounds = thread.unwinder->bounds();
    std::uint64_t cframe = python.has_c_stack_frames ? 0 : word(state + python.layout->cframe);
    std::uint32_t mark = n_;
    std::uint64_t at = c_frame(cframe, mark, bounds);
    for (std::uint32_t k = cache.frame_count(); k > cache.kept_count() && at != 0;) {
        const stack::Frame& frame = cache.frame(k - 1);
        if (const std::uint64_t end = k > 1 ? cache.frame(k - 2).sp : bounds.high; at >= end) {
            --k;
            continue;
        }
        if (at >= frame.sp) note_eval(thread, frame.address());
        at = c_frame(cframe, mark, bounds);
    }
}

}  // namespace assay::heap
