#include "profile/heap/python.hpp"

#include <string.h>

#include <algorithm>
#include <atomic>

#include "profile/heap/exports.hpp"
#include "profile/heap/process.hpp"

namespace assay::heap {

std::atomic<bool> reads_python{false};

namespace {

using stack::StackId;

// Offsets in the interpreter's structures, 64 bits, with the GIL, as offsetof gives them for its own headers
// (cpython/pystate.h, internal/pycore_frame.h, cpython/code.h, cpython/unicodeobject.h).
struct Layout {
    std::uint32_t version;  // major and minor: the upper half of PY_VERSION_HEX
    // PyThreadState: its _PyCFrame, and in that the innermost frame and the one further out; or the frame itself.
    std::uint32_t cframe, current, outer_cframe;
    // _PyInterpreterFrame; flag: is_entry, or owner.
    std::uint32_t code, previous, instruction, flag;
    // PyCodeObject
    std::uint32_t first_line, filename, name, qualname, bytecode;
    // Where the characters of a string begin, if all are ASCII and if not: PyASCIIObject, PyCompactUnicodeObject.
    std::uint32_t ascii, compact;
};
constexpr std::uint32_t none = ~std::uint32_t{0};
constexpr Layout layouts[] = {
    {0x030b, 56, 8, 16, 32, 48, 56, 68, 72, 112, 120, 128, 184, 48, 72},
    {0x030c, 56, 0, none, 0, 8, 56, 70, 68, 112, 120, 128, 192, 40, 56},
    {0x030d, none, 72, none, 0, 8, 56, 70, 68, 112, 120, 128, 200, 40, 56},
};
// Alike in all of them: PyObject, and the string's length, hash and state (kind 3 bits, compact, ascii).
constexpr std::uint32_t type_at = 8, length_at = 16, hash_at = 24, state_at = 32, kind_at = 2, compact_at = 5, ascii_at = 6;
// 3.11 marks the outermost Python frame that a C frame runs (is_entry); later ones have in its place one more, which lies on
// the C stack (FRAME_OWNED_BY_CSTACK) and runs nothing.
constexpr std::uint32_t entry_frame = 1, c_stack_frame = 3;
// _Py_DebugOffsets, with which _PyRuntime begins from 3.13 on: a cookie, the version, and whether there is no GIL.
constexpr std::uint32_t without_gil_at = 16;

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ull;

struct Interpreter {
    const Layout* layout;
    bool has_c_stack_frames;
    void* (*this_thread)();
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
        if (word(string + type_at) != python.string_type || (state >> compact_at & 1) == 0) return put('?');
        const std::uint64_t characters = string + ((state >> ascii_at & 1) != 0 ? python.layout->ascii : python.layout->compact);
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

// Tells a code object from another that has taken its place, as far as a few loads can: its name by that string's own
// hash, its file by length and last characters.
std::uint64_t identity_of(std::uint64_t code) {
    const Layout& layout = *python.layout;
    const std::uint64_t file = word(code + layout.filename), length = word(file + length_at);
    std::uint64_t end;
    memcpy(&end, reinterpret_cast<const void*>(file + layout.ascii + length - sizeof end), sizeof end);  // may begin in the head
    std::uint64_t h = word(word(code + layout.name) + hash_at) * golden;
    h = (h ^ h >> 32 ^ word(code + layout.qualname)) * golden;
    h = (h ^ h >> 32 ^ file) * golden;
    h = (h ^ h >> 32 ^ end) * golden;
    return h ^ length << 32 ^ half(code + layout.first_line);
}

void note_eval(Thread& thread, std::uint64_t address) {
    for (std::size_t k = 0, at = (address * golden) >> 54; k < eval_slots; ++k, at = (at + 1) % eval_slots) {
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

// Whether the object has this address.
int holds(dl_phdr_info* object, std::size_t, void* address) {
    const std::uint64_t at = reinterpret_cast<std::uint64_t>(address) - object->dlpi_addr;
    for (int k = 0; k < object->dlpi_phnum; ++k)
        if (const auto& segment = object->dlpi_phdr[k]; segment.p_type == PT_LOAD && at - segment.p_vaddr < segment.p_memsz) return 1;
    return 0;
}

// Where the chain of frames begins; 0: the thread runs no Python, or its state may be gone.
std::uint64_t state_of(const Thread& thread) {
    // The first thing that an ending interpreter does is to free the states of threads that it does not wait for.
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
    const Layout* layout = nullptr;
    for (const Layout& one : layouts)
        if (one.version == version >> 16) layout = &one;
    Interpreter found{layout, false, nullptr, nullptr, nullptr, 0, 0};
    const std::uint64_t runtime = exports.find("_PyRuntime");
    const bool is_complete = find(found.this_thread, exports, "PyGILState_GetThisThreadState") && find(found.line_of, exports, "PyCode_Addr2Line") &&
                             find(found.code_type, exports, "PyCode_Type") && find(found.string_type, exports, "PyUnicode_Type") &&
                             (find(found.is_finalizing, exports, "Py_IsFinalizing") || find(found.is_finalizing, exports, "_Py_IsFinalizing"));
    const bool has_gil = layout == nullptr || layout->cframe != none || (runtime != 0 && word(runtime + without_gil_at) == 0);
    if (layout == nullptr || !is_complete || !has_gil) {
        unread = version;
        return;
    }
    found.has_c_stack_frames = layout->outer_cframe == none;
    python = found;
    unread = 0;
    // C stacks that were followed before are followed anew: which of their frames run Python is not known yet.
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
    if (python.layout != nullptr && dl_iterate_phdr(holds, reinterpret_cast<void*>(python.this_thread)) == 0) python = {};
    if (unloading.fetch_sub(1, std::memory_order_relaxed) == 1 && python.layout != nullptr) reads_python.store(true, std::memory_order_release);
}

void restart_python() {
    is_unread_told.store(false, std::memory_order_relaxed);
    for (auto& one : evals) one.store(0, std::memory_order_relaxed);
}

StackId with_python(Thread& thread, StackId native) {
    const std::uint64_t state = state_of(thread), innermost = state != 0 ? innermost_of(state) : 0;
    if (innermost == 0 || native == stack::no_stack) return native;
    if (thread.python == nullptr && (thread.python = static_cast<PythonFrames*>(map_zeroed(sizeof(PythonFrames)))) == nullptr) return native;
    PythonFrames& frames = *thread.python;
    frames.keep_to(stack::generation.load(std::memory_order_relaxed));
    const StackId id = frames.follow(thread, innermost);
    if (const std::uint64_t walks = thread.unwinder->counts().walks; walks != frames.walks) {
        frames.walks = walks;
        frames.learn(thread, thread.unwinder->trail(), state);
    }
    return id == stack::no_stack ? native : frames.join(native, id);
}

void PythonFrames::keep_to(std::uint32_t generation) {
    if (generation == generation_) return;
    const bool is_fresh = generation_ == 0;  // then its memory is better not touched
    generation_ = generation;
    if (is_fresh) return;
    n_ = 0;
    memset(children_, 0, sizeof children_);
    memset(places_, 0, sizeof places_);
    memset(joined_, 0, sizeof joined_);
}

// The mark at which the chain from `at` on meets the last one; 0: none. What lies before it is in chain_.
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

// Whether the chain still goes from mark `from` outwards as the marks say; `same`: how many of them, the outermost first, are
// as they were.
bool PythonFrames::compare(std::uint32_t from, std::uint32_t& same) const {
    const Layout& layout = *python.layout;
    const std::uint32_t code = layout.code, previous = layout.previous, instruction = layout.instruction, flag = layout.flag;
    same = from;
    for (std::uint32_t k = from; k > 0; --k) {
        // Its frame is read only since the one further in has just named it.
        const Mark& mark = marks_[k];
        const std::uint64_t differs = (word(mark.frame + code) ^ mark.code) | (word(mark.frame + instruction) ^ mark.instruction) |
                                      (byte(mark.frame + flag) ^ mark.flag);
        if (differs != 0) same = k - 1;
        if (__builtin_expect(word(mark.frame + previous) != marks_[k - 1].frame, 0)) return false;
    }
    return true;
}

StackId PythonFrames::follow(Thread& thread, std::uint64_t innermost) {
    std::uint32_t known = walk_to_known(innermost), same = 0;
    if (known != 0 && (!compare(known, same) || known + taken_ > most_frames)) {
        n_ = same = 0;  // further out it goes another way
        known = walk_to_known(innermost);
    }
    // Frames that have gone on since, and those that are new; the outermost first.
    n_ = same;
    bool is_whole = true;
    while (is_whole && n_ < known) is_whole = push(thread, marks_[n_ + 1].frame);
    while (is_whole && taken_ > 0) is_whole = push(thread, chain_[--taken_]);
    if (is_whole) return marks_[n_].id;
    n_ = 0;
    return stack::no_stack;
}

// The next frame inwards.
bool PythonFrames::push(Thread& thread, std::uint64_t frame) {
    const Layout& layout = *python.layout;
    const Mark& outer = marks_[n_];
    Mark mark{frame, word(frame + layout.code), word(frame + layout.instruction), outer.id, byte(frame + layout.flag)};
    const bool runs_nothing = python.has_c_stack_frames && mark.flag == c_stack_frame;
    if (!runs_nothing && word(mark.code + type_at) != python.code_type) return false;
    // What the interpreter puts around __init__ is no function of anybody's, and has a name for its file.
    if (!runs_nothing && word(mark.code + layout.filename) != word(mark.code + layout.qualname)) {
        const bool is_entry = python.has_c_stack_frames ? outer.flag == c_stack_frame : mark.flag == entry_frame;
        const StackId place = place_of(thread, mark.code, mark.instruction);
        if (place == stack::no_stack) return false;
        mark.id = child(outer.id, tagged(frame_tag, place | (is_entry ? entry_bit : 0)));
        if (mark.id == stack::no_stack) return false;
    }
    marks_[++n_] = mark;
    return true;
}

StackId PythonFrames::child(StackId parent, std::uint64_t address) {
    Child& known = children_[((address ^ (std::uint64_t{parent} << 33)) * golden) >> (64 - child_bits)];
    if (known.address != address || known.parent != parent) known = {address, parent, tree.child(parent, address)};
    return known.id;
}

StackId PythonFrames::join(StackId native, StackId id) {
    const std::uint64_t both = std::uint64_t{native} << 32 | id;
    Joined& known = joined_[(both * golden) >> (64 - joined_bits)];
    if (known.both != both) known = {both, tree.child(native, tagged(joined_tag, id))};
    return known.id;
}

StackId PythonFrames::place_of(Thread& thread, std::uint64_t code, std::uint64_t instruction) {
    Place& known = places_[(instruction * golden) >> (64 - place_bits)];
    const std::uint64_t identity = identity_of(code);
    if (known.instruction != instruction || known.code != code || known.identity != identity)
        known = {code, instruction, identity, name_place(thread, code, instruction)};
    return known.number;
}

// What is the same to whoever reads it has the same number, wherever its code lies.
StackId PythonFrames::name_place(Thread& thread, std::uint64_t code, std::uint64_t instruction) {
    constexpr std::size_t head_room = 32, most_name = 300, most_path = 1000;
    const Layout& layout = *python.layout;
    const int line = python.line_of(reinterpret_cast<void*>(code), static_cast<int>(instruction - (code + layout.bytecode)));
    char* const body = text_ + head_room;
    Line text{body, text_ + sizeof text_ - 1};
    text.put_number(line > 0 ? static_cast<std::uint64_t>(line) : half(code + layout.first_line), 10);
    text.put(' ');
    text.put_string(word(code + layout.filename), most_path);
    text.put('\t');
    text.put_string(word(code + layout.qualname), most_name);
    *text.at++ = '\n';
    const auto bytes = static_cast<std::size_t>(text.at - body);
    const StackId next = tree.size(), number = tree.child(stack::no_stack, tagged(place_tag, hash_of(body, bytes)));
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

// The interpreter's own words on its C frames, from the innermost outwards, as addresses on the stack; 0 after the last.
std::uint64_t PythonFrames::c_frame(std::uint64_t& cframe, std::uint32_t& mark, const stack::Bounds& bounds) const {
    if (!python.has_c_stack_frames) {
        const std::uint64_t at = cframe;  // that of the thread's state is the last, and not on the stack
        if (!bounds.holds(at)) return 0;
        cframe = word(at + python.layout->outer_cframe);
        return at;
    }
    while (mark > 0)
        if (const Mark& one = marks_[mark--]; one.flag == c_stack_frame) return bounds.holds(one.frame) ? one.frame : 0;
    return 0;
}

void PythonFrames::learn(Thread& thread, const stack::Trail& trail, std::uint64_t state) {
    const stack::Bounds& bounds = thread.unwinder->bounds();
    std::uint64_t cframe = python.has_c_stack_frames ? 0 : word(state + python.layout->cframe);
    std::uint32_t mark = n_;
    std::uint64_t at = c_frame(cframe, mark, bounds);
    for (std::uint32_t k = trail.frames(); k > trail.first_new() && at != 0;) {
        const stack::Frame& frame = trail.frame(k - 1);
        if (const std::uint64_t end = k > 1 ? trail.frame(k - 2).sp : bounds.high; at >= end) {
            --k;
            continue;
        }
        if (at >= frame.sp) note_eval(thread, frame.address());
        at = c_frame(cframe, mark, bounds);
    }
}

}  // namespace assay::heap
