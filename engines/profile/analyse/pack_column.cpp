// Packs numbers into little-endian columns and encodes them as base64.
#include "profile/analyse/pack_column.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

namespace assay::profile {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename To, typename From, typename Convert>
Column pack_as(const char* type, std::span<const From> values, Convert convert) {
    std::vector<std::uint8_t> bytes(values.size() * sizeof(To));
    for (std::size_t k = 0; k < values.size(); ++k) {
        const To value = convert(values[k]);
        std::memcpy(bytes.data() + k * sizeof(To), &value, sizeof(To));
    }
    return {type, base64(bytes)};
}

template <typename To>
Column pack_narrowed(const char* type, std::span<const std::uint64_t> values) {
    return pack_as<To>(type, values, [](std::uint64_t value) { return static_cast<To>(value); });
}

template <typename To>
bool fits_type(std::uint64_t value) {
    return value <= std::numeric_limits<To>::max();
}

}  // namespace

std::string base64(std::span<const std::uint8_t> bytes) {
    static constexpr char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text((bytes.size() + 2) / 3 * 4, '=');
    char* output = text.data();
    for (std::size_t k = 0; k < bytes.size(); k += 3) {
        const std::size_t count = std::min<std::size_t>(3, bytes.size() - k);
        std::uint32_t group = static_cast<std::uint32_t>(bytes[k]) << 16;
        if (count > 1) group |= static_cast<std::uint32_t>(bytes[k + 1]) << 8;
        if (count > 2) group |= bytes[k + 2];
        for (std::size_t digit = 0; digit <= count; ++digit)
            output[digit] = digits[group >> (18 - 6 * digit) & 63];
        output += 4;
    }
    return text;
}

Column pack_column(std::span<const std::uint64_t> values) {
    const std::uint64_t largest = values.empty() ? 0 : *std::ranges::max_element(values);
    if (largest == 0) return {"zero", ""};
    if (fits_type<std::uint8_t>(largest)) return pack_narrowed<std::uint8_t>("u1", values);
    if (fits_type<std::uint16_t>(largest)) return pack_narrowed<std::uint16_t>("u2", values);
    if (fits_type<std::uint32_t>(largest)) return pack_narrowed<std::uint32_t>("u4", values);
    return pack_narrowed<double>("f8", values);
}

Column pack_indices(std::span<const std::uint32_t> values) {
    return pack_as<std::int32_t>(
        "i4", values, [](std::uint32_t value) { return static_cast<std::int32_t>(value); });
}

Column pack_scaled(std::span<const std::uint64_t> values, double factor) {
    if (std::ranges::all_of(values, [](std::uint64_t value) { return value == 0; }))
        return {"zero", ""};
    return pack_as<float>("f4", values, [factor](std::uint64_t value) {
        return static_cast<float>(static_cast<double>(value) * factor);
    });
}

}  // namespace assay::profile
