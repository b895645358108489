// Opens the files of a process's mappings.
#include "profile/record/mappings.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "profile/image/mappings.hpp"

namespace assay::heap {

std::string list_object_mappings(std::uint32_t pid) {
    const int maps = open(fmt::format("/proc/{}/maps", pid).c_str(), O_RDONLY | O_CLOEXEC),
              pagemap = open(fmt::format("/proc/{}/pagemap", pid).c_str(), O_RDONLY | O_CLOEXEC);
    std::string lines;
    if (maps >= 0 && pagemap >= 0) {
        const auto mappings = std::make_unique<image::ObjectMappings>(maps, pagemap);
        for (std::string_view line; !(line = mappings->next()).empty();) lines += line;
    }
    if (maps >= 0) close(maps);
    if (pagemap >= 0) close(pagemap);
    return lines;
}

}  // namespace assay::heap
