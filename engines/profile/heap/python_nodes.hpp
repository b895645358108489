// The encoding of Python functions in the stack tree: nodes whose `address` has a tag in its
// highest byte.
//
//     frame    | 0xf1 | 23 unused | entry 1 | line number 32 |
//              A Python function at a line, below its caller; the outermost is below no_stack. The
//              entry bit marks the outermost frame that one C frame of the interpreter runs.
//     joined   | 0xf2 | stack 56 |
//              A C stack (the parent) with the Python stack (its innermost frame) that it runs.
//     line     | 0xf3 | hash 56 |
// A function at a line. Frames refer to it by its node number. A text of
//              Kind::python holds its file, line and function.
#pragma once

#include <cstdint>

#include "profile/stack/tree.hpp"

namespace assay::heap {

inline constexpr int tag_shift = 56;
inline constexpr std::uint64_t frame_tag = 0xf1, joined_tag = 0xf2, line_tag = 0xf3;
inline constexpr std::uint64_t entry_bit = std::uint64_t{1} << 32;

inline std::uint64_t tag_of(std::uint64_t address) { return address >> tag_shift; }
inline bool is_python(std::uint64_t address) {
    return tag_of(address) >= frame_tag && tag_of(address) <= line_tag;
}
inline std::uint64_t with_tag(std::uint64_t tag, std::uint64_t rest) {
    return tag << tag_shift | (rest & ((std::uint64_t{1} << tag_shift) - 1));
}
// The number in the lowest 32 bits.
inline stack::StackId node_number(std::uint64_t address) {
    return static_cast<stack::StackId>(address);
}

}  // namespace assay::heap
