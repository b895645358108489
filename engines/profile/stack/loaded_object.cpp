// Finds the object whose unwind tables cover an address, with the function of glibc 2.35 where it
// is.
#include "profile/stack/loaded_object.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>

// The headers of an older glibc do not declare it; its layout on x86-64 and aarch64 is fixed.
#ifndef DLFO_STRUCT_HAS_EH_DBASE
struct dl_find_object {
    unsigned long long dlfo_flags;
    void* dlfo_map_start;
    void* dlfo_map_end;
    link_map* dlfo_link_map;
    void* dlfo_eh_frame;
    unsigned long long reserved[7];
};
extern "C" int _dl_find_object(void* address, dl_find_object* object) noexcept;
#endif
#pragma weak _dl_find_object

namespace assay::stack {
namespace {

using Bytes = const std::uint8_t*;

bool contains(Bytes begin, Bytes end, Bytes address) { return address >= begin && address < end; }

// Sets the mapping that holds the tables, among the segments of an object.
bool find_segment(const ElfW(Phdr) * headers, unsigned long count, ElfW(Addr) base,
                  LoadedObject& object) {
    for (unsigned long k = 0; headers != nullptr && k < count; ++k) {
        const auto begin = reinterpret_cast<Bytes>(base + headers[k].p_vaddr);
        const auto end = begin + headers[k].p_memsz;
        if (headers[k].p_type != PT_LOAD || !contains(begin, end, object.tables)) continue;
        object.begin = begin;
        object.end = end;
        return true;
    }
    return false;
}

struct Search {
    Bytes address;
    LoadedObject* object;
};

int find_in_object(dl_phdr_info* info, std::size_t, void* data) {
    auto& search = *static_cast<Search*>(data);
    bool covers = false;
    Bytes tables = nullptr;
    for (unsigned k = 0; k < info->dlpi_phnum; ++k) {
        const ElfW(Phdr) & header = info->dlpi_phdr[k];
        const auto begin = reinterpret_cast<Bytes>(info->dlpi_addr + header.p_vaddr);
        if (header.p_type == PT_LOAD)
            covers |= contains(begin, begin + header.p_memsz, search.address);
        if (header.p_type == PT_GNU_EH_FRAME) tables = begin;
    }
    if (!covers) return 0;
    search.object->tables = tables;
    return tables != nullptr &&
                   find_segment(info->dlpi_phdr, info->dlpi_phnum, info->dlpi_addr, *search.object)
               ? 1
               : -1;
}

}  // namespace

bool find_in_list_of_objects(std::uint64_t address, LoadedObject& object) {
    Search search{reinterpret_cast<Bytes>(address), &object};
    return dl_iterate_phdr(find_in_object, &search) == 1;
}

bool find_loaded_object(std::uint64_t address, LoadedObject& object) {
    if (_dl_find_object == nullptr) return find_in_list_of_objects(address, object);
    dl_find_object found{};
    if (_dl_find_object(reinterpret_cast<void*>(address), &found) != 0 ||
        found.dlfo_eh_frame == nullptr)
        return false;
    object = {static_cast<Bytes>(found.dlfo_eh_frame), static_cast<Bytes>(found.dlfo_map_start),
              static_cast<Bytes>(found.dlfo_map_end)};
    // The kernel may map the segments of a program separately. _dl_find_object then reports only
    // the code; the program headers give the other segments.
    if (!contains(object.begin, object.end, object.tables) && found.dlfo_link_map->l_name[0] == 0)
        find_segment(reinterpret_cast<const ElfW(Phdr)*>(getauxval(AT_PHDR)), getauxval(AT_PHNUM),
                     found.dlfo_link_map->l_addr, object);
    return true;
}

}  // namespace assay::stack
