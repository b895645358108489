#include "profile/image/mappings.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace assay::image {
namespace {

constexpr std::size_t page = 4096, pages = 20'000;  // more than a line holds
alignas(page) char variable[pages * page];

struct Line {
    std::uint64_t begin = 0, end = 0;
    std::string digits, path;
};

std::vector<Line> list_own_mappings() {
    const int maps = open("/proc/self/maps", O_RDONLY),
              pagemap = open("/proc/self/pagemap", O_RDONLY);
    REQUIRE(maps >= 0);
    REQUIRE(pagemap >= 0);
    std::vector<Line> lines;
    ObjectMappings mappings(maps, pagemap);
    for (std::string_view text; !(text = mappings.next()).empty();) {
        CHECK(text.back() == '\n');
        std::istringstream fields{std::string(text)};
        Line line;
        fields >> std::hex >> line.begin >> line.end >> line.digits >> line.path;
        CHECK(fields);
        lines.push_back(line);
    }
    close(maps);
    close(pagemap);
    return lines;
}

// Whether a page of the variable is listed as resident.
bool is_resident(const std::vector<Line>& lines, std::size_t number) {
    const auto address = reinterpret_cast<std::uint64_t>(variable + number * page);
    for (const Line& line : lines) {
        if (address < line.begin || address >= line.end) continue;
        const std::uint64_t k = (address - line.begin) / page;
        REQUIRE(k / 4 < line.digits.size());
        return (std::stoul(line.digits.substr(k / 4, 1), nullptr, 16) >> k % 4 & 1) != 0;
    }
    FAIL("the page is not listed");
    return false;
}

TEST_CASE("the pages of a variable that were written are listed as resident") {
    REQUIRE(madvise(variable, sizeof variable, MADV_NOHUGEPAGE) == 0);
    for (const std::size_t number : {0, 5, 8191, 8192, 19'999}) variable[number * page] = 1;
    const std::vector<Line> lines = list_own_mappings();
    for (const std::size_t number : {0, 5, 8191, 8192, 19'999}) CHECK(is_resident(lines, number));
    for (const std::size_t number : {2, 4'000, 10'000, 19'000})
        CHECK_FALSE(is_resident(lines, number));
    std::size_t of_this_object = 0;
    for (const Line& line : lines) {
        CHECK(line.begin < line.end);
        CHECK(line.path.front() == '/');
        of_this_object += line.path == lines.front().path ? 1 : 0;
    }
    CHECK(of_this_object >= 3);  // the variable's mapping has three lines
}

}  // namespace
}  // namespace assay::image
