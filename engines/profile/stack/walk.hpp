// Walks a stack frame by frame with unwind rules, and reports the stack words that determined the
// walk.
//
// A walk depends on its start (pc, sp, bp) and on the words that it read. If these words are
// unchanged, a later walk from the same start gives the same result. The unwinder's memo relies on
// this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profile/stack/rule.hpp"

namespace assay::stack {

// The registers in a frame that is being executed, or that has called another.
struct Frame {
    std::uint64_t pc = 0, sp = 0, bp = 0;
    bool called = true;  // pc is a return address; otherwise the frame was interrupted at pc
    std::uint64_t lr_address = 0;  // address of the saved link register of an interrupted frame

    std::uint64_t address() const { return called ? pc - 1 : pc; }
};

// The caller of the function that uses this macro, which must be compiled with a frame pointer.
#define ASSAY_CALLER()                                                           \
    ::assay::stack::Frame {                                                      \
        ::assay::stack::strip_signature(                                         \
            reinterpret_cast<std::uint64_t>(__builtin_return_address(0))),       \
            reinterpret_cast<std::uint64_t>(__builtin_dwarf_cfa()),              \
            *static_cast<const std::uint64_t*>(__builtin_frame_address(0)), true \
    }

// The address range of a thread's stack.
struct Bounds {
    std::uint64_t low = 0, high = 0;

    std::uint64_t size() const { return high - low; }
    bool contains(std::uint64_t address) const {
        return address >= low && address < high && high - address >= 8 && (address & 7) == 0;
    }
};

// Caches the rules of addresses for one thread. Cleared after an object is unloaded.
class RuleCache {
public:
    const Rule& find(std::uint64_t address) {
        Entry& entry = entries_[(address * 0x9e3779b97f4a7c15ull) >> (64 - bits)];
        if (entry.address != address) {
            entry = {address, read_rule(address)};
            ++rules_read_;
        }
        return entry.rule;
    }
    void clear();
    std::uint64_t rules_read() const { return rules_read_; }

private:
    static constexpr int bits = 14;
    struct Entry {
        std::uint64_t address;
        Rule rule;
    };
    Entry entries_[1 << bits];
    std::uint64_t rules_read_ = 0;
};

// One step of a walk: how it ended, and the addresses (slots) of the words that determined it.
struct Step {
    // none: the walk goes on in the caller. outermost: the frame has no caller. lost: the caller
    // cannot be determined.
    enum class End : std::uint8_t { none, outermost, lost } end = End::none;
    bool uses_bp = false;         // the step depends on the frame's BP
    bool has_new_bp = false;      // the caller's BP was loaded from bp_slot
    std::uint8_t slot_count = 0;  // of `slots`, the return address among them
    std::uint64_t slots[4] = {};
    std::uint64_t bp_slot = 0;
};

// Steps `frame` to its caller; leaves it unchanged when the walk ends. Reads only within `bounds`.
Step step(Frame& frame, const Rule& rule, const Bounds& bounds);

}  // namespace assay::stack
