// The sizes of fragments. Each is a function of seed, source and event. So a builder unit knows the
// sizes of the fragments that it receives, and a source that came back makes the same fragment
// again.
//
// A file gives a distribution for each source; a line is `SOURCES KIND NUMBERS`:
//
//     0-7   fixed 64KiB              or 65536, 64k; kB is decimal
//     8     uniform 100 300
//     9,11  normal 1000 200          clipped to four standard deviations, and to 1 byte
//     *     choice 200:9 4000:1      sizes and their weights; * is every source not named
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace assay::events {

class Sizes {
public:
    static Sizes fixed(std::uint32_t bytes, int sources);
    // Reads the text of a file. Sources are numbered by readout units, not by ranks. Throws Error
    // with the line number.
    static Sizes read(std::string_view text, const std::string& file, int sources,
                      std::uint64_t seed);

    // Payload bytes of the fragment of an event.
    std::uint32_t fragment_bytes(int source, std::uint64_t event) const;
    std::uint32_t largest(int source) const { return distribution(source).largest; }
    double mean(int source) const { return distribution(source).mean; }

private:
    struct Source {
        enum class Kind : std::uint8_t { none, fixed, uniform, normal, choice };
        Kind kind = Kind::none;
        double a = 0, b = 0;  // fixed: a; uniform: a to b; normal: mean a, standard deviation b
        std::vector<std::pair<double, std::uint32_t>> choices{};  // cumulative share, size
        std::uint32_t largest = 0;
        double mean = 0;
    };
    static Source parse(const std::vector<std::string>& fields, const std::string& where);
    const Source& distribution(int source) const {
        return sources_[static_cast<std::size_t>(source)];
    }

    std::vector<Source> sources_;
    std::uint64_t seed_ = 0;
};

}  // namespace assay::events
