// Reads and checks the options of storage.hdf5.
#include "storage/hdf5/shape.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"

namespace assay::storage {
namespace {

Pattern read_pattern(const Options& options, const char* name) {
    const std::string& text = options.text(name);
    if (text == "CONTIG") return Pattern::contiguous;
    if (text == "INTERLEAVED") return Pattern::interleaved;
    throw Error(fmt::format("--{} {}: unknown pattern", name, text),
                "choose one of CONTIG, INTERLEAVED");
}

ReadOption read_option(const std::string& text) {
    if (text == "FULL") return ReadOption::full;
    if (text == "PARTIAL") return ReadOption::partial;
    if (text == "STRIDED") return ReadOption::strided;
    throw Error("--read-option " + text + ": unknown read option",
                "choose one of FULL, PARTIAL, STRIDED");
}

}  // namespace

std::uint64_t DatasetShape::particles_read(int ranks) const {
    switch (read) {
        case ReadOption::full: return particles();
        case ReadOption::partial: {
            const std::uint64_t rows =
                to_read ? to_read / static_cast<std::uint64_t>(ranks) / (extent[1] * extent[2])
                        : extent[0] / 2;
            return std::clamp<std::uint64_t>(rows, 1, extent[0]) * extent[1] * extent[2];
        }
        case ReadOption::strided: break;
    }
    return extent[0] / stride * block;
}

DatasetShape read_shape(const Options& options) {
    const auto number = [&](const char* name) {
        return static_cast<std::uint64_t>(options.integer(name));
    };
    DatasetShape shape{.dims = static_cast<int>(options.integer("num_dims")),
                       .extent = {number("dim_1"), number("dim_2"), number("dim_3")},
                       .timesteps = options.integer("timesteps"),
                       .memory = read_pattern(options, "mem_pattern"),
                       .file = read_pattern(options, "file_pattern"),
                       .read = read_option(options.text("read_option")),
                       .to_read = number("to_read_num_particles"),
                       .stride = number("stride_size"),
                       .block = number("block_size"),
                       .collective_data = options.flag("collective_data"),
                       .collective_metadata = options.flag("collective_metadata"),
                       .compute_s = options.real("compute_time")};
    for (int k = shape.dims; k < 3; ++k)
        if (shape.extent[k] != 1)
            throw Error(
                fmt::format("dim_{} is {} with {} dimensions", k + 1, shape.extent[k], shape.dims),
                "raise num_dims (NUM_DIMS)");
    if (shape.read == ReadOption::strided &&
        (shape.dims != 1 || shape.block > shape.stride || shape.extent[0] < shape.stride))
        throw Error(
            "STRIDED needs one dimension, blocks no longer than the stride, and a stride no longer "
            "than a rank's part",
            "set NUM_DIMS=1 and BLOCK_SIZE <= STRIDE_SIZE <= DIM_1");
    return shape;
}

}  // namespace assay::storage
