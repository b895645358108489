// Reads /proc/PID/maps and /proc/PID/pagemap.
#include "profile/record/mappings.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

namespace assay::heap {
namespace {

constexpr std::uint64_t max_mapping_bytes = 256 << 20;  // limit of one mapping; the rest is omitted
constexpr std::uint64_t present_bit = std::uint64_t{1} << 63, entry_bytes = 8;

// A bit for each page, 1 if it is resident, as hexadecimal digits: four pages per digit, the first
// page in the lowest bit.
std::string resident_page_digits(int pagemap, std::uint64_t begin, std::uint64_t end) {
    const auto page_bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    std::vector<std::uint64_t> entries((std::min(end - begin, max_mapping_bytes) + page_bytes - 1) /
                                       page_bytes);
    const ssize_t n = pread(pagemap, entries.data(), entries.size() * entry_bytes,
                            static_cast<off_t>(begin / page_bytes * entry_bytes));
    entries.resize(n > 0 ? static_cast<std::size_t>(n) / entry_bytes : 0);
    std::string digits;
    for (std::size_t k = 0; k < entries.size(); k += 4) {
        unsigned digit = 0;
        for (std::size_t bit = 0; bit < 4 && k + bit < entries.size(); ++bit)
            digit |= (entries[k + bit] & present_bit) != 0 ? 1u << bit : 0;
        digits += "0123456789abcdef"[digit];
    }
    return digits.empty() ? "0" : digits;
}

}  // namespace

std::string list_object_mappings(std::uint32_t pid) {
    std::ifstream maps(fmt::format("/proc/{}/maps", pid));
    const int pagemap = open(fmt::format("/proc/{}/pagemap", pid).c_str(), O_RDONLY | O_CLOEXEC);
    if (pagemap < 0) return "";
    std::string lines, object;
    std::uint64_t object_end = 0;
    for (std::string line; std::getline(maps, line);) {
        std::uint64_t begin = 0, end = 0;
        char dash = 0;
        std::string permissions, offset, device, inode, path;
        std::istringstream fields(line);
        fields >> std::hex >> begin >> dash >> end >> permissions >> offset >> device >> inode;
        if (!fields || permissions.size() < 4) continue;
        std::getline(fields >> std::ws, path);
        // The anonymous mapping after an object's data is its .bss.
        if (path.empty() && begin == object_end) path = object;
        if (path.empty() || path[0] != '/') continue;
        object = path;
        object_end = end;
        if (permissions[1] == 'w' && permissions[3] == 'p')
            lines += fmt::format("{:x} {:x} {} {}\n", begin, end,
                                 resident_page_digits(pagemap, begin, end), path);
    }
    close(pagemap);
    return lines;
}

}  // namespace assay::heap
