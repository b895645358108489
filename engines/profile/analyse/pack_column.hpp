// Columns of a profile's tables in their narrowest type, as base64 (records/profile.py: Column).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "profile/analyse/profile_schema.hpp"

namespace assay::profile {

std::string base64(std::span<const std::uint8_t> bytes);

// Integers above 2^32 become doubles, which are exact up to 2^53.
Column pack_column(std::span<const std::uint64_t> values);
Column pack_indices(std::span<const std::uint32_t> values);                // none (~0) becomes -1
Column pack_scaled(std::span<const std::uint64_t> values, double factor);  // as 4-byte floats

}  // namespace assay::profile
