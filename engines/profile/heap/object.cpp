#include "profile/heap/object.hpp"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

namespace assay::heap {
namespace {

std::uint64_t page() { return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)); }

// Whether the mapping of an address is writable now.
bool is_writable(std::uint64_t address) {
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return true;
    char text[4096];
    Range range;
    std::uint64_t number = 0;
    int field = 0;  // of a line: begin, end, permissions, the rest
    bool is_found = false, writable = true;
    for (ssize_t n; !is_found && (n = read(fd, text, sizeof text)) > 0;)
        for (ssize_t k = 0; k < n && !is_found; ++k) {
            const char c = text[k];
            if (c == '\n') {
                field = 0;
                number = 0;
            } else if (field < 2 && (c == '-' || c == ' ')) {
                (field++ == 0 ? range.begin : range.end) = number;
                number = 0;
            } else if (field < 2) {
                number =
                    number << 4 | static_cast<std::uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
            } else if (++field == 4 &&
                       range.contains(address)) {  // second letter of the permissions
                is_found = true;
                writable = c == 'w';
            }
        }
    close(fd);
    return writable;
}

}  // namespace

Range range_of(const dl_phdr_info& object) {
    Range range{~std::uint64_t{0}, 0};
    for (int k = 0; k < object.dlpi_phnum; ++k) {
        const ElfW(Phdr) & segment = object.dlpi_phdr[k];
        if (segment.p_type != PT_LOAD) continue;
        const std::uint64_t address = object.dlpi_addr + segment.p_vaddr;
        if (address < range.begin) range.begin = address;
        if (address + segment.p_memsz > range.end) range.end = address + segment.p_memsz;
    }
    return range;
}

Range relro_of(const dl_phdr_info& object) {
    for (int k = 0; k < object.dlpi_phnum; ++k)
        if (const ElfW(Phdr) & segment = object.dlpi_phdr[k]; segment.p_type == PT_GNU_RELRO) {
            const std::uint64_t address = object.dlpi_addr + segment.p_vaddr;
            return {address & ~(page() - 1), (address + segment.p_memsz) & ~(page() - 1)};
        }
    return {};
}

bool is_relocated(const dl_phdr_info& object) {
    const Range sealed = relro_of(object);
    return sealed.end <= sealed.begin || !is_writable(sealed.begin);
}

}  // namespace assay::heap
