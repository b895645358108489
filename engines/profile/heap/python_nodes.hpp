// How Python's functions stand in the tree of stacks. A node's address is then none: its highest
// byte says what it is.
//
//     frame   a Python function at a line, below the one that has called it; the outermost hangs
//             below no_stack. In the lowest 32 bits the number of its place, and one bit more for
//             the outermost that a C frame of the interpreter runs
//     joined  a C stack (the parent) with the Python stack (the number of its innermost frame) that
//             it runs
//     place   a function at a line: its number is what frames name, and a text says what it is
#pragma once

#include <cstdint>

#include "profile/stack/tree.hpp"

namespace assay::heap {

inline constexpr int tag_shift = 56;
inline constexpr std::uint64_t frame_tag = 0xf1, joined_tag = 0xf2, place_tag = 0xf3;
inline constexpr std::uint64_t entry_bit = std::uint64_t{1}
                                           << 32;  // the interpreter's C frame begins with it

inline std::uint64_t tag_of(std::uint64_t address) { return address >> tag_shift; }
inline bool is_python(std::uint64_t address) {
    return tag_of(address) >= frame_tag && tag_of(address) <= place_tag;
}
inline std::uint64_t tagged(std::uint64_t tag, std::uint64_t rest) {
    return tag << tag_shift | (rest & ((std::uint64_t{1} << tag_shift) - 1));
}
// The number that the lowest 32 bits hold.
inline stack::StackId named_in(std::uint64_t address) {
    return static_cast<stack::StackId>(address);
}

}  // namespace assay::heap
