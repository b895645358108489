// Integers of variable length: seven bits a byte, the lowest first; all bytes but the last have
// their high bit set. Small numbers of either sign are made small by zigzag: 0, -1, 1, -2 become
// 0, 1, 2, 3.
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

// get(byte) fetches the next byte; false where there is none. Returns false, and sets `value` to 0,
// when the encoding does not end.
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

inline void put_varint(Bytes& to, std::uint64_t value) {
    encode_varint(value, [&](std::uint8_t byte) { to.push_back(byte); });
}
inline std::uint64_t zigzag(std::int64_t value) {
    return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
inline std::int64_t unzigzag(std::uint64_t value) {
    return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

// Reads varints and bytes, never beyond the end: after a failed read `ok` is false, and zeros
// follow.
class VarintReader {
public:
    explicit VarintReader(std::span<const std::uint8_t> data)
        : next_(data.data()), end_(next_ + data.size()) {}

    std::uint64_t varint() {
        std::uint64_t value = 0;
        const bool is_whole = decode_varint(value, [this](std::uint8_t& byte) {
            if (next_ == end_) return false;
            byte = *next_++;
            return true;
        });
        ok_ = ok_ && is_whole;
        return value;
    }
    std::span<const std::uint8_t> take(std::size_t bytes) {
        if (bytes > static_cast<std::size_t>(end_ - next_)) {
            ok_ = false;
            return {};
        }
        const std::span<const std::uint8_t> taken(next_, bytes);
        next_ += bytes;
        return taken;
    }
    bool ok() const { return ok_; }

private:
    const std::uint8_t *next_, *end_;
    bool ok_ = true;
};

}  // namespace assay::heap
