// Varints, integers of variable length (LEB128): seven bits per byte, the lowest first; all bytes
// but the last have their high bit set. The zigzag encoding maps signed to unsigned numbers: 0, -1,
// 1, -2 become 0, 1, 2, 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace assay::heap {

using Bytes = std::vector<std::uint8_t>;

inline constexpr std::size_t max_varint_bytes = 10;

// Calls put(byte) for each byte of the encoding.
template <class Put>
void encode_varint(std::uint64_t value, Put put) {
    while (value >= 128) {
        put(static_cast<std::uint8_t>(value | 128));
        value >>= 7;
    }
    put(static_cast<std::uint8_t>(value));
}

// Decodes a varint. get(byte) fetches the next byte and returns false at the end of the input.
// Returns false, and sets `value` to 0, if the input is truncated.
template <class Get>
bool decode_varint(std::uint64_t& value, Get get) {
    value = 0;
    std::uint8_t byte = 0;
    for (int shift = 0; shift < 64 && get(byte); shift += 7) {
        value |= static_cast<std::uint64_t>(byte & 127) << shift;
        if (byte < 128) return true;
    }
    value = 0;
    return false;
}

inline void put_varint(Bytes& output, std::uint64_t value) {
    encode_varint(value, [&](std::uint8_t byte) { output.push_back(byte); });
}
inline std::uint64_t zigzag(std::int64_t value) {
    return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
inline std::int64_t unzigzag(std::uint64_t value) {
    return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

// Reads varints and bytes within a span. After a read beyond the end, ok() is false and all further
// values are 0.
class VarintReader {
public:
    explicit VarintReader(std::span<const std::uint8_t> data)
        : next_(data.data()), end_(next_ + data.size()) {}

    std::uint64_t varint() {
        std::uint64_t value = 0;
        const bool is_complete = decode_varint(value, [this](std::uint8_t& byte) {
            if (next_ == end_) return false;
            byte = *next_++;
            return true;
        });
        ok_ = ok_ && is_complete;
        return value;
    }
    std::span<const std::uint8_t> read_bytes(std::size_t bytes) {
        if (bytes > static_cast<std::size_t>(end_ - next_)) {
            ok_ = false;
            return {};
        }
        const std::span<const std::uint8_t> part(next_, bytes);
        next_ += bytes;
        return part;
    }
    bool ok() const { return ok_; }

private:
    const std::uint8_t *next_, *end_;
    bool ok_ = true;
};

}  // namespace assay::heap
