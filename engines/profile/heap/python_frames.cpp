// Reads the frames of CPython from the interpreter's structures and joins them with C stacks.
#include <string.h>

#include <algorithm>
#include <atomic>

#include "profile/heap/hooks.hpp"
#include "profile/heap/process.hpp"
#include "profile/heap/python.hpp"
#include "profile/heap/python_interpreter.hpp"

namespace assay::heap {
namespace {

using stack::ReadablePages;
using stack::StackId;

constexpr std::uint64_t hash_multiplier = 0x9e3779b97f4a7c15ull;

// An open-addressing hash set of the recorded addresses of C frames that run Python frames.
constexpr std::size_t max_eval_frames = 1024;  // an interpreter has some 200
std::atomic<std::uint64_t> eval_frames[max_eval_frames];

// Writes a Python string, at most its last `max_characters`; "?" for one that cannot be read.
void put_string(Line& line, ReadablePages& pages, std::uint64_t string,
                std::uint64_t max_characters) {
    if (!pages.contain(string, string_head_bytes)) return line.put('?');
    const std::uint32_t state = load32(string + state_offset), size = state >> kind_bit & 7;
    if (load64(string + type_offset) != python.string_type || (state >> compact_bit & 1) == 0)
        return line.put('?');
    const std::uint64_t characters =
        string + ((state >> ascii_bit & 1) != 0 ? python.layout->ascii : python.layout->compact);
    const std::uint64_t length = load64(string + length_offset),
                        first = length - std::min(length, max_characters);
    if (!pages.contain(characters + first * size, (length - first + 1) * size))
        return line.put('?');
    for (std::uint64_t k = first; k < length; ++k) {
        const std::uint64_t c = characters + k * size;
        std::uint16_t utf16 = 0;
        memcpy(&utf16, reinterpret_cast<const void*>(c), sizeof utf16);
        line.put_character(size == 1 ? load8(c) : size == 2 ? utf16 : load32(c));
    }
}

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

void forget_eval_frames() {
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
    put_string(text, pages_, load64(code + layout.filename), max_path);
    text.put('\t');
    put_string(text, pages_, load64(code + layout.qualname), max_name);
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
