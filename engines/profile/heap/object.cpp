// Determines address ranges of loaded objects. The functions run inside the profiled program, where
// the hooks must not allocate, so /proc/self/maps is read through a fixed buffer and parsed byte by
// byte.
#include "profile/heap/object.hpp"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

namespace assay::heap {
namespace {

std::uint64_t page_size() { return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)); }

// Whether the mapping that holds the address is writable; true if that is unknown. A line of
// /proc/self/maps begins "begin-end rwxp ", with the addresses in hexadecimal.
bool is_writable(std::uint64_t address) {
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return true;
    char text[4096];
    Range range;
    std::uint64_t number = 0;
    int field = 0;  // 0: begin, 1: end, 2 and more: characters after them
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
            } else if (++field == 4 && range.contains(address)) {  // second permission: w or -
                is_found = true;
                writable = c == 'w';
            }
        }
    close(fd);
    return writable;
}

}  // namespace

Range object_range(const dl_phdr_info& object) {
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

Range relro_range(const dl_phdr_info& object) {
    for (int k = 0; k < object.dlpi_phnum; ++k)
        if (const ElfW(Phdr) & segment = object.dlpi_phdr[k]; segment.p_type == PT_GNU_RELRO) {
            const std::uint64_t address = object.dlpi_addr + segment.p_vaddr;
            return {address & ~(page_size() - 1), (address + segment.p_memsz) & ~(page_size() - 1)};
        }
    return {};
}

bool is_relocated(const dl_phdr_info& object) {
    const Range relro = relro_range(object);
    return relro.end <= relro.begin || !is_writable(relro.begin);
}

}  // namespace assay::heap
