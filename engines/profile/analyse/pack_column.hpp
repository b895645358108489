// Columns of a profile's tables in their narrowest type, as base64 (records/profile.py: Column).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "profile/analyse/profile_schema.hpp"

namespace assay::profile {

std::string base64(std::span<const std::uint8_t> bytes);

// Packs integers into 1, 2 or 4 bytes, larger ones into doubles, which are exact up to 2^53.
Column pack_column(std::span<const std::uint64_t> values);
Column pack_indices(std::span<const std::uint32_t> values);  // ~0 (no parent) becomes -1
Column pack_scaled(std::span<const std::uint64_t> values, double factor);  // as 4-byte floats

}  // namespace assay::profile
