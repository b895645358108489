// Memory modules of this host as its firmware describes them. Their number and rate bound the
// memory bandwidth.
//
// Sources: structure 17 of the SMBIOS table (System Management BIOS Reference Specification 3.7,
// DMTF DSP0134) where the table is readable (root); else udev's database, which dmi_memory_id fills
// from that table. Channels come from the kernel's EDAC drivers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace assay {

struct MemoryModule {
    std::string locator, bank;    // labels given by the vendor: "DIMM_A1", "P0 CHANNEL A"
    double transfer_rate = 0;     // configured, 1/s; 0: not reported
    std::uint32_t data_bits = 0;  // width without check bits; 0: not reported
    std::string type;             // the memory type: its number in SMBIOS, or its name in udev
};

// The modules in an SMBIOS table. Empty slots, flash and persistent memory are left out. A
// truncated structure ends the list.
std::vector<MemoryModule> modules_of_table(std::span<const std::uint8_t> table);

// The modules in udev's database entry of the firmware (/run/udev/data/+dmi:id).
std::vector<MemoryModule> modules_of_udev(const std::string& text);

// Number of different channels that the modules' labels name. None if a module's labels name no
// channel or are longer than 256 bytes.
std::optional<int> channels_named(const std::vector<MemoryModule>& modules);

struct MemoryModules {
    int modules = 0;              // number of modules
    std::optional<int> channels;  // number of channels that have a module
    double transfer_rate = 0;     // of the slowest module, 1/s
    double width = 0;             // of the narrowest module, bytes per transfer
};
// The modules of this host. None if a module does not report its rate or its width, or if modules
// differ in type (HBM beside DDR).
std::optional<MemoryModules> memory_modules();

}  // namespace assay
