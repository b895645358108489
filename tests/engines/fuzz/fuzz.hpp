// What a fuzz target offers: readers, each a function that takes any bytes, and inputs to begin
// with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using Input = std::vector<std::uint8_t>;

struct Reader {
    const char* name;
    std::vector<Input> (*planted)();
    // Takes any bytes. assay::Error is an answer as good as any; the driver catches it.
    void (*read)(const std::uint8_t* data, std::size_t size);
};

std::vector<Reader> readers();

namespace fuzz {

// The path of a file in memory that holds these bytes; each call replaces the file before.
std::string file_of(const void* data, std::size_t size);
// A path beside it where no file is.
std::string free_path();

inline Input input_of(const std::string& text) { return {text.begin(), text.end()}; }

// The numbers at the beginning of an input, and the bytes after them: for readers of several parts.
class Parts {
public:
    Parts(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
    // 0 beyond the end.
    template <class Value>
    Value take() {
        Value value{};
        const std::size_t bytes = size_ < sizeof value ? size_ : sizeof value;
        if (bytes > 0) __builtin_memcpy(&value, data_, bytes);
        data_ += bytes;
        size_ -= bytes;
        return value;
    }
    // At most `most` of the next bytes.
    std::string take_bytes(std::size_t most) {
        const std::size_t bytes = size_ < most ? size_ : most;
        std::string taken(reinterpret_cast<const char*>(data_), bytes);
        data_ += bytes;
        size_ -= bytes;
        return taken;
    }
    std::size_t left() const { return size_; }

private:
    const std::uint8_t* data_;
    std::size_t size_;
};

template <class Value>
void append(Input& input, const Value& value) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
    input.insert(input.end(), bytes, bytes + sizeof value);
}

}  // namespace fuzz
