// Walking a stack by rules, frame by frame, and saying which words decided the way.
//
// A walk is a function of its start (pc, sp, bp) and of the words that it read. Whoever keeps those
// words can later see, by comparing them, that the walk would go the same way: that is what the
// memo does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profile/stack/rule.hpp"

namespace assay::stack {

// A frame that is being executed or has called: the registers as they are in it.
struct Frame {
    std::uint64_t pc = 0, sp = 0, bp = 0;
    bool called = true;       // pc is a return address; else it was interrupted there
    std::uint64_t lr_at = 0;  // where the link register of an interrupted frame was saved

    std::uint64_t address() const { return called ? pc - 1 : pc; }
};

// The caller of the function in which this stands, which is compiled with a frame pointer.
#define ASSAY_CALLER()                                                                       \
    ::assay::stack::Frame {                                                                  \
        ::assay::stack::plain(reinterpret_cast<std::uint64_t>(__builtin_return_address(0))), \
            reinterpret_cast<std::uint64_t>(__builtin_dwarf_cfa()),                          \
            *static_cast<const std::uint64_t*>(__builtin_frame_address(0)), true             \
    }

struct Bounds {
    std::uint64_t low = 0, high = 0;  // of the thread's stack

    std::uint64_t size() const { return high - low; }
    bool holds(std::uint64_t at) const {
        return at >= low && at < high && high - at >= 8 && (at & 7) == 0;
    }
};

// Rules by address, for one thread; cleared when an object is unloaded.
class RuleCache {
public:
    const Rule& find(std::uint64_t address) {
        Entry& entry = entries_[(address * 0x9e3779b97f4a7c15ull) >> (64 - bits)];
        if (entry.address != address) {
            entry = {address, read_rule(address)};
            ++read_;
        }
        return entry.rule;
    }
    void clear();
    std::uint64_t read() const { return read_; }  // rules so far

private:
    static constexpr int bits = 14;
    struct Entry {
        std::uint64_t address;
        Rule rule;
    };
    Entry entries_[1 << bits];
    std::uint64_t read_ = 0;
};

// One step of a walk: where the frame's caller is, and the stack's addresses whose words decided
// it.
struct Step {
    enum class End : std::uint8_t { none, last, lost } end = End::none;
    bool used_bp = false;    // the frame's own bp mattered
    bool new_bp = false;     // the caller's bp was loaded from bp_slot
    std::uint8_t reads = 0;  // words in `read`, the return address among them
    std::uint64_t read[4] = {};
    std::uint64_t bp_slot = 0;
};

// Steps `frame` to its caller; leaves it alone where the step says that it ended. Reads only within
// `bounds`.
Step step(Frame& frame, const Rule& rule, const Bounds& bounds);

}  // namespace assay::stack
