// What the heap hooks know of a CPython interpreter: where its structures keep what they read
// (python_frames.cpp), and how its functions are called. python.cpp finds it.
#pragma once

#include <cstdint>

namespace assay::heap {

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

struct Interpreter {
    const Layout* layout;
    bool has_c_stack_frames;
    void* (*get_thread_state)();   // the calling thread's PyThreadState
    void* (*get_current_state)();  // the PyThreadState that holds the GIL; null for none
    int (*is_finalizing)();
    int (*line_of)(void* code, int offset);
    std::uint64_t code_type, string_type;
};
// The interpreter of this process; its layout is null if there is none whose frames can be read.
extern Interpreter python;

inline std::uint64_t load64(std::uint64_t address) {
    return *reinterpret_cast<const std::uint64_t*>(address);
}
inline std::uint32_t load32(std::uint64_t address) {
    return *reinterpret_cast<const std::uint32_t*>(address);
}
inline std::uint32_t load8(std::uint64_t address) {
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
};

}  // namespace assay::heap
