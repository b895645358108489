// Finds the characters of text that change what a terminal does or shows. No dependencies, because
// code that is loaded into other programs includes this file.
#pragma once

#include <cstddef>

namespace assay {

// The number of bytes of the unsafe character at the beginning of a UTF-8 text; 0: it is safe.
// Unsafe are control characters (C0, DEL, C1), which move the cursor or make the terminal type an
// answer, and bidirectional formatting, which makes text look different from what it is.
constexpr std::size_t unsafe_bytes(const char* text, std::size_t bytes) {
    const auto byte = [=](std::size_t k) {
        return k < bytes ? static_cast<unsigned char>(text[k]) : 0u;
    };
    const unsigned first = byte(0), second = byte(1), third = byte(2);
    if (bytes == 0) return 0;
    if (first < ' ' || first == 0x7f) return 1;
    if (first == 0xc2 && second >= 0x80 && second <= 0x9f) return 2;  // C1
    if (first == 0xd8 && second == 0x9c) return 2;                    // U+061C
    if (first != 0xe2) return 0;
    // U+200E, U+200F; U+2028 to U+202E; U+2066 to U+2069
    const bool is_mark = second == 0x80 && (third == 0x8e || third == 0x8f);
    const bool is_direction = second == 0x80 && third >= 0xa8 && third <= 0xae;
    const bool is_isolate = second == 0x81 && third >= 0xa6 && third <= 0xa9;
    return is_mark || is_direction || is_isolate ? 3 : 0;
}

}  // namespace assay
