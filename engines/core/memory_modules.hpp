// Memory modules of this host as its firmware describes them, for the bandwidth that they allow.
//
// Sources: System Management BIOS Reference Specification 3.7 (DMTF DSP0134), structure 17; its
// table where it is readable (root), else what udev's dmi_memory_id has read of it; the kernel's
// EDAC drivers for channels.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace assay {

struct MemoryModule {
    std::string locator, bank;    // where it is, in the vendor's words: "DIMM_A1", "P0 CHANNEL A"
    double transfer_rate = 0;     // configured, 1/s; 0: not told
    std::uint32_t data_bits = 0;  // width without check bits; 0: not told
    std::string type;             // as the specification numbers it, or as udev names it
};

// Of a SMBIOS table: slots with a module of memory in them; flash and persistent memory do not
// count. A structure that is cut ends the list.
std::vector<MemoryModule> modules_of_table(std::span<const std::uint8_t> table);

// Of the text of udev's database entry of the firmware.
std::vector<MemoryModule> modules_of_udev(const std::string& text);

// Number of different channels that the locators name; none where one of them names none or is
// longer than 256 bytes.
std::optional<int> channels_named(const std::vector<MemoryModule>& modules);

struct MemoryModules {
    int modules = 0;
    std::optional<int> channels;  // with a module
    double transfer_rate = 0;     // of the slowest module, 1/s
    double width = 0;             // of the narrowest module, bytes a transfer
};
// None where a module does not tell its rate or its width, or modules differ in type (HBM beside
// DDR).
std::optional<MemoryModules> memory_modules();

}  // namespace assay
