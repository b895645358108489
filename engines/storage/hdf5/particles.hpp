// The data of storage.hdf5: the particles of h5bench, which are those of the plasma code VPIC.
// Every value is a function of time step, rank, index and variable, so a reader can check it.
#pragma once

#include <cstdint>
#include <vector>

namespace assay::storage {

struct Particle {
    float x, y, z, px, py, pz;
    std::int32_t id_1;
    float id_2;
};

inline constexpr int variables = 8;
inline constexpr const char* variable_names[variables] = {"x",  "y",  "z",    "px",
                                                          "py", "pz", "id_1", "id_2"};
inline constexpr int integer_variable = 6;  // id_1; all variables have 4 bytes

// A whole number below 2^24, which a float holds exactly.
inline std::int32_t expected_value(std::int64_t step, int rank, std::uint64_t index, int variable) {
    const std::uint64_t mixed =
        (index * 2654435761u) ^
        (static_cast<std::uint64_t>(step) * 40503u + static_cast<std::uint64_t>(rank) * 97u +
         static_cast<std::uint64_t>(variable) * 7919u);
    return static_cast<std::int32_t>(mixed & 0xFFFFFF);
}

}  // namespace assay::storage
