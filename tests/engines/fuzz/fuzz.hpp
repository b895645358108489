// The interface of a fuzz target: a list of readers (functions that parse untrusted input), each
// with seed inputs, from which the driver (driver.cpp) makes mutated inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using Input = std::vector<std::uint8_t>;

struct Reader {
    const char* name;
    // Valid inputs, which the driver mutates.
    std::vector<Input> (*seed_inputs)();
    // Parses any bytes. It may throw assay::Error, and it aborts if a result is impossible.
    void (*read)(const std::uint8_t* data, std::size_t size);
};

// The readers of this target. Each target defines it.
std::vector<Reader> readers();

namespace fuzz {

// Writes the bytes into a temporary file and returns its path. Each call replaces the file of the
// call before.
std::string write_input_file(const void* data, std::size_t size);
// A path in the same folder at which no file exists.
std::string unused_path();

inline Input input_of(const std::string& text) { return {text.begin(), text.end()}; }

// Reads values from the begin of an input, for readers whose input has several parts.
class InputReader {
public:
    InputReader(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
    // The next value; missing bytes are 0.
    template <class Value>
    Value read() {
        Value value{};
        const std::size_t bytes = size_ < sizeof value ? size_ : sizeof value;
        if (bytes > 0) __builtin_memcpy(&value, data_, bytes);
        data_ += bytes;
        size_ -= bytes;
        return value;
    }
    // The next bytes, `max_bytes` at most.
    std::string read_bytes(std::size_t max_bytes) {
        const std::size_t bytes = size_ < max_bytes ? size_ : max_bytes;
        std::string result(reinterpret_cast<const char*>(data_), bytes);
        data_ += bytes;
        size_ -= bytes;
        return result;
    }
    std::size_t remaining() const { return size_; }

private:
    const std::uint8_t* data_;
    std::size_t size_;
};

// Appends the bytes of a value.
template <class Value>
void append(Input& input, const Value& value) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
    input.insert(input.end(), bytes, bytes + sizeof value);
}

}  // namespace fuzz
