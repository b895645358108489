// Fuzz target: readers of a machine's files: executables that are about to be run, the firmware's
// table of memory modules, and udev's database of them.
#include <elf.h>

#include <cstdlib>
#include <cstring>
#include <span>

#include "core/memory_modules.hpp"
#include "fuzz.hpp"
#include "preload/obstacle.hpp"  // reads executables

using namespace assay;

using fuzz::append;

namespace {

// --- Programs

#if defined(__x86_64__)
constexpr std::uint16_t own_machine = EM_X86_64;
#else
constexpr std::uint16_t own_machine = EM_AARCH64;
#endif

// An ELF executable with four segments: the headers, the path of the loader, the dynamic section,
// and its string table.
Input executable(const std::string& loader, const std::string& string_table) {
    constexpr std::size_t segments = 4, dynamic_count = 3;
    constexpr std::size_t loader_offset = sizeof(Elf64_Ehdr) + segments * sizeof(Elf64_Phdr);
    const std::size_t dynamic_offset = loader_offset + loader.size() + 1,
                      string_table_offset = dynamic_offset + dynamic_count * sizeof(Elf64_Dyn);
    constexpr std::uint64_t base = 0x400000;
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_machine = own_machine;
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = segments;
    Input input;
    append(input, header);
    const auto add_segment = [&](std::uint32_t type, std::uint64_t offset, std::uint64_t bytes) {
        append(input, Elf64_Phdr{type, 0, offset, base + offset, 0, bytes, bytes, 1});
    };
    add_segment(PT_LOAD, 0, 100);
    add_segment(PT_INTERP, loader_offset, loader.size() + 1);
    add_segment(PT_DYNAMIC, dynamic_offset, dynamic_count * sizeof(Elf64_Dyn));
    add_segment(PT_LOAD, string_table_offset, string_table.size());
    input.insert(input.end(), loader.begin(), loader.end());
    input.push_back(0);
    append(input, Elf64_Dyn{DT_STRTAB, {base + string_table_offset}});
    append(input, Elf64_Dyn{DT_STRSZ, {string_table.size()}});
    append(input, Elf64_Dyn{DT_NULL, {0}});
    input.insert(input.end(), string_table.begin(), string_table.end());
    return input;
}

std::vector<Input> seed_programs() {
    const std::string glibc = "/lib64/ld-linux-x86-64.so.2";
    // The name lies across 4096 bytes, the size of the blocks in which the string table is read.
    std::string string_table(5000, 'x');
    string_table.replace(4090, 11, "__asan_init");
    return {executable(glibc, "libc.so.6"), executable(glibc, string_table),
            executable("/lib/ld-musl-x86_64.so.1", "libc.so"),
            fuzz::input_of("#! /nowhere/interpreter -x\nexit\n")};
}

void read_program(const std::uint8_t* data, std::size_t size) {
    const std::string path = fuzz::write_input_file(data, size);
    const preload::PreloadObstacle obstacle = preload::obstacle_of(path.c_str());
    if (*preload::reason(obstacle) == 0 && obstacle != preload::PreloadObstacle::none) std::abort();
    // The result depends on the file only.
    if (preload::obstacle_of(path.c_str()) != obstacle) std::abort();
    char folder[64];
    const std::string search(data, data + size), name = path.substr(path.rfind('/') + 1);
    preload::find_program(name.c_str(), search.c_str(), folder, sizeof folder);
}

// --- Memory modules

std::vector<Input> seed_tables() {
    Input module(0x5c, 0);
    module[0] = 17, module[1] = 0x5c;
    module[0x0a] = 64, module[0x0d] = 64;
    module[0x10] = 1, module[0x11] = 2, module[0x12] = 26;
    module[0x15] = module[0x16] = 0xff;
    module[0x20] = 0x75, module[0x21] = 0x0b;
    for (const char* text : {"P0 CHANNEL A", "CPU1_DIMM_A1"}) {
        module.insert(module.end(), text, text + std::strlen(text) + 1);
    }
    module.push_back(0);
    Input table{4, 6, 0, 0, 1, 2, 0, 0};
    for (int k = 0; k < 3; ++k) table.insert(table.end(), module.begin(), module.end());
    table.insert(table.end(), {127, 4, 0xff, 0xff, 0, 0});
    return {table};
}

// Aborts if the modules have impossible values.
void check_modules(const std::vector<MemoryModule>& modules) {
    const auto channels = channels_named(modules);
    if (channels && (*channels < 1 || *channels > static_cast<int>(modules.size()))) std::abort();
    for (const MemoryModule& module : modules)
        if (!(module.transfer_rate >= 0 && module.transfer_rate < 1e16)) std::abort();
}

void read_table(const std::uint8_t* data, std::size_t size) {
    const auto modules = modules_of_table({data, size});
    if (modules.size() > size / 4) std::abort();
    check_modules(modules);
}

std::vector<Input> seed_udev() {
    return {
        fuzz::input_of("E:MEMORY_DEVICE_0_SIZE=34359738368\n"
                       "E:MEMORY_DEVICE_0_LOCATOR=P0-DIMMA1\n"
                       "E:MEMORY_DEVICE_0_TYPE=DDR4\nE:MEMORY_DEVICE_0_DATA_WIDTH=64\n"
                       "E:MEMORY_DEVICE_0_SPEED_MTS=3200\n"
                       "E:MEMORY_DEVICE_0_CONFIGURED_SPEED_MTS=2400\n"
                       "E:MEMORY_DEVICE_1_PRESENT=0\nE:MEMORY_DEVICE_12_SIZE=1\n")};
}

void read_udev(const std::uint8_t* data, std::size_t size) {
    check_modules(modules_of_udev({data, data + size}));
}

}  // namespace

std::vector<Reader> readers() {
    return {{"program", seed_programs, read_program},
            {"modules_table", seed_tables, read_table},
            {"modules_udev", seed_udev, read_udev}};
}
