#include "profile/stack/unwinder.hpp"

namespace assay::stack {

std::atomic<std::uint32_t> generation{0};

// What a walk over one segment found.
struct Unwinder::Lesson {
    std::uint32_t n = 0, frames = 0;
    std::uint32_t offset[max_words] = {};
    std::uint64_t address[max_words + 1] = {};
    bool uses_bp = false, is_outermost = false, is_lost = false;
    Frame next{};
    std::uint32_t next_bp = as_at_start;

    bool has_room(unsigned words) const { return n + words <= max_words; }
    void add(std::uint64_t slot, std::uint64_t sp) { offset[n++] = static_cast<std::uint32_t>((slot - sp) / 8); }
};

namespace {

std::uint64_t word(std::uint64_t at) { return *reinterpret_cast<const std::uint64_t*>(at); }

}  // namespace

// Walks until the stack or the room ends. False when the start is not on this thread's stack.
bool Unwinder::walk_segment(const Frame& start, Lesson& lesson) {
    if (!bounds_.holds(start.sp)) return false;
    Frame frame = start;
    bool bp_is_compared = false;  // the word that bp was loaded from is among the words
    for (;;) {
        const Frame before = frame;
        const Step taken = step(frame, rules_.find(before.address()), bounds_);
        const bool from_start = lesson.next_bp == as_at_start;
        const bool needs_bp = taken.used_bp && !from_start && !bp_is_compared;
        if (!lesson.has_room(taken.reads + (needs_bp ? 1u : 0u))) {
            lesson.next = before;
            return true;
        }
        lesson.uses_bp |= taken.used_bp && from_start;
        if (needs_bp) {
            lesson.add(start.sp + 8 * std::uint64_t{lesson.next_bp}, start.sp);
            bp_is_compared = true;
        }
        bool bp_among_reads = false;
        for (unsigned k = 0; k < taken.reads; ++k) {
            lesson.add(taken.read[k], start.sp);
            bp_among_reads |= taken.new_bp && taken.read[k] == taken.bp_slot;
        }
        lesson.address[lesson.frames++] = before.address();
        if (taken.end != Step::End::none) {
            lesson.is_outermost = true;
            lesson.is_lost = taken.end == Step::End::lost;
            return true;
        }
        if (taken.new_bp) {
            lesson.next_bp = static_cast<std::uint32_t>((taken.bp_slot - start.sp) / 8);
            bp_is_compared = bp_among_reads;
        }
    }
}

// The layout of this start with these offsets: the one there is, or a new one in place of the oldest.
const Unwinder::Layout& Unwinder::layout_of(const Frame& start, const Lesson& lesson) {
    const unsigned set = set_of(start);
    unsigned way = 0;
    for (; way < ways && keys_[set][way].pc != 0; ++way) {
        const Layout& known = layouts_[set][way];
        if (keys_[set][way].pc == start.pc && keys_[set][way].sp == start.sp && known.called == start.called &&
            known.uses_bp == lesson.uses_bp && (!known.uses_bp || known.bp == start.bp) && known.n == lesson.n &&
            std::memcmp(known.offset, lesson.offset, lesson.n * sizeof lesson.offset[0]) == 0)
            return known;
    }
    if (way == ways) way = victim_[set]++ % ways;
    keys_[set][way] = {start.pc, start.sp};
    Layout& layout = layouts_[set][way];
    layout = {start.bp, ++serials_, lesson.n, lesson.uses_bp, start.called, {}};
    std::memcpy(layout.offset, lesson.offset, sizeof layout.offset);
    return layout;
}

Unwinder::Entry& Unwinder::room_for(std::uint64_t hash) {
    Entry* first = &entries_[(hash * golden) >> (64 - entry_bits)];
    for (unsigned probe = 0; probe < probes; ++probe)
        if (first[probe].serial == 0) return first[probe];
    return first[numbers_ % probes];
}

const Unwinder::Entry* Unwinder::learn(const Frame& start, Tree& tree) {
    Lesson lesson;
    if (!walk_segment(start, lesson)) return nullptr;
    ++counts_.walks;
    // Filled up to a multiple of four with a word that is there already.
    while (lesson.n % 4 != 0) {
        lesson.offset[lesson.n] = lesson.offset[lesson.n - 1];
        ++lesson.n;
    }
    const Layout& layout = layout_of(start, lesson);
    const auto* base = reinterpret_cast<const std::uint64_t*>(start.sp);
    const std::uint64_t h = hash_words(base, layout);
    Entry& entry = room_for(h);
    entry = {};
    if (lesson.is_outermost) {
        counts_.lost += lesson.is_lost;
        const StackId root = lesson.is_lost ? lost_root : complete_root;
        entry.id = tree.insert(root, {lesson.address, lesson.frames});
        if (entry.id == no_stack) return nullptr;
    } else {
        entry.next_pc = lesson.next.pc;
        entry.next_called = lesson.next.called;
        entry.next_sp = static_cast<std::uint32_t>((lesson.next.sp - start.sp) / 8);
        entry.next_bp = lesson.next_bp;
    }
    entry.hash = h;
    entry.serial = layout.serial;
    entry.number = ++numbers_;
    entry.frames = lesson.frames;
    entry.is_outermost = lesson.is_outermost;
    for (std::uint32_t k = 0; k < layout.n; ++k) entry.word[k] = base[layout.offset[k]];
    return &entry;
}

Frame Unwinder::next_of(const Frame& start, const Entry& entry) {
    const std::uint64_t bp = entry.next_bp == as_at_start ? start.bp : word(start.sp + 8 * std::uint64_t{entry.next_bp});
    return {entry.next_pc, start.sp + 8 * std::uint64_t{entry.next_sp}, bp, entry.next_called};
}

StackId Unwinder::capture_chain(const Frame& start, Tree& tree) {
    Link chain[max_segments];
    unsigned links = 0;
    StackId id = lost_root;  // of a stack that is deeper than all segments
    for (Frame frame = start; links < max_segments;) {
        const Entry* entry = find(frame);
        if (entry == nullptr) entry = learn(frame, tree);
        if (entry == nullptr) return bounds_.holds(frame.sp) ? no_stack : tree.child(lost_root, start.address());
        if (entry->is_outermost) {
            id = entry->id;
            break;
        }
        chain[links++] = {entry->number, entry->frames, frame};
        frame = next_of(frame, *entry);
    }
    while (links-- > 0 && id != no_stack) id = join(id, chain[links], tree);
    return id;
}

StackId Unwinder::join(StackId outer, const Link& link, Tree& tree) {
    Join& known = joins_[((outer * golden) ^ (link.number * 0xd6e8feb86659fd93ull)) >> (64 - join_bits)];
    if (known.number == link.number && known.outer == outer) return known.id;
    Lesson lesson;
    walk_segment(link.start, lesson);
    const StackId id = tree.insert(outer, {lesson.address, lesson.frames});
    known = {link.number, outer, id};
    return id;
}

StackId Unwinder::walk(Frame frame, Tree& tree) {
    constexpr unsigned most = max_words * max_segments;
    std::uint64_t addresses[most];
    unsigned n = 0;
    StackId root = lost_root;
    while (n < most) {
        addresses[n++] = frame.address();
        const Step taken = step(frame, rules_.find(frame.address()), bounds_);
        if (taken.end == Step::End::none) continue;
        if (taken.end == Step::End::last) root = complete_root;
        break;
    }
    return tree.insert(root, {addresses, n});
}

void Unwinder::forget(std::uint32_t now) {
    generation_ = now;
    std::memset(keys_, 0, sizeof keys_);
    std::memset(entries_, 0, sizeof entries_);
    std::memset(joins_, 0, sizeof joins_);
    rules_.clear();
}

}  // namespace assay::stack
