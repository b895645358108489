// Memory modules from the SMBIOS table, udev's database and the kernel's EDAC drivers.
#include "core/memory_modules.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/topology.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr std::uint8_t memory_device = 17, end_of_table = 127;
// Offsets of fields within structure 17, in bytes. Tables of older SMBIOS versions end before the
// last fields.
enum : std::size_t {
    data_width = 0x0a,
    size = 0x0c,
    locator = 0x10,
    bank = 0x11,
    memory_type = 0x12,
    speed = 0x15,
    configured_speed = 0x20,
    extended_speed = 0x54,
    extended_configured_speed = 0x58
};
// The value of a 16-bit field whose number is unknown or is in a longer field.
constexpr std::uint32_t unknown_16 = 0xffff;
// std::regex_search calls itself for each character: a long text would exhaust the stack.
constexpr std::size_t longest_name = 256;
// Types of modules that are not volatile memory (ROM, flash, logical non-volatile devices), as
// SMBIOS numbers and as udev names them.
const std::set<std::string>& nonvolatile_types() {
    static const std::set<std::string> types = {
        "8", "9", "31", "ROM", "FLASH", "Flash", "Logical non-volatile device"};
    return types;
}

// The little-endian number of `count` bytes; 0 if the structure is too short for it.
std::uint32_t little_endian(std::span<const std::uint8_t> bytes, std::size_t offset,
                            std::size_t count) {
    if (offset + count > bytes.size()) return 0;
    std::uint32_t value = 0;
    for (std::size_t i = count; i-- > 0;) value = value << 8 | bytes[offset + i];
    return value;
}

// A transfer rate in MT/s, from its 16-bit field or from the longer field `extended`; 0: not given.
std::uint32_t rate_field(std::span<const std::uint8_t> structure, std::size_t offset,
                         std::size_t extended) {
    const std::uint32_t value = little_endian(structure, offset, 2);
    return value == unknown_16 ? little_endian(structure, extended, 4) : value;
}

// The strings that follow a structure; `next` becomes the offset of the next structure. False if
// the table is truncated.
bool read_strings(std::span<const std::uint8_t> table, std::size_t& next,
                  std::vector<std::string>& strings) {
    std::string current;
    for (; next + 1 < table.size(); ++next) {
        if (table[next] != 0) {
            current += static_cast<char>(table[next]);
            continue;
        }
        if (!current.empty()) strings.push_back(std::exchange(current, {}));
        if (table[next + 1] == 0) {
            next += 2;
            return true;
        }
    }
    return false;
}

// The string whose number (from 1) a field holds; empty if there is none.
std::string string_field(std::span<const std::uint8_t> structure, std::size_t offset,
                         const std::vector<std::string>& strings) {
    const std::uint32_t index = little_endian(structure, offset, 1);
    return index == 0 || index > strings.size() ? "" : strings[index - 1];
}

// The value of a text that is a whole number; 0 for any other text.
std::uint32_t whole_number(const std::string& text) {
    std::uint32_t number = 0;
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, number);
    return read.ec == std::errc() && read.ptr == end ? number : 0;
}

std::string read_whole_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Number of channels with a module, from the locations that the kernel's memory controllers report:
// "csrow 0 channel 1", "channel 1 slot 0".
std::optional<int> edac_channels() {
    static const std::regex channel("channel ([0-9]+)");
    std::set<std::string> channels;
    std::error_code ignored;
    for (const auto& controller : fs::directory_iterator(sysfs("devices/system/edac/mc"), ignored))
        for (const auto& module : fs::directory_iterator(controller.path(), ignored)) {
            const std::string location = read_line(module.path() / "dimm_location");
            std::smatch match;
            const bool occupied =
                std::strtoll(read_line(module.path() / "size").c_str(), nullptr, 10) > 0;
            if (occupied && std::regex_search(location, match, channel))
                channels.insert(controller.path().filename().string() + " " + match[1].str());
        }
    return channels.empty() ? std::nullopt : std::optional(static_cast<int>(channels.size()));
}

}  // namespace

std::vector<MemoryModule> modules_of_table(std::span<const std::uint8_t> table) {
    std::vector<MemoryModule> modules;
    for (std::size_t offset = 0; offset + 4 <= table.size();) {
        const std::uint8_t type = table[offset], length = table[offset + 1];
        if (type == end_of_table || length < 4 || offset + length > table.size()) break;
        const auto structure = table.subspan(offset, length);
        std::vector<std::string> strings;
        std::size_t next = offset + length;
        if (!read_strings(table, next, strings)) break;
        offset = next;
        if (type != memory_device || little_endian(structure, size, 2) == 0) continue;
        MemoryModule module;
        module.locator = string_field(structure, locator, strings);
        module.bank = string_field(structure, bank, strings);
        std::uint32_t rate = rate_field(structure, configured_speed, extended_configured_speed);
        if (rate == 0) rate = rate_field(structure, speed, extended_speed);
        module.transfer_rate = 1e6 * rate;
        const std::uint32_t bits = little_endian(structure, data_width, 2);
        module.data_bits = bits == unknown_16 ? 0 : bits;
        module.type = std::to_string(little_endian(structure, memory_type, 1));
        if (!nonvolatile_types().contains(module.type)) modules.push_back(std::move(module));
    }
    return modules;
}

std::vector<MemoryModule> modules_of_udev(const std::string& text) {
    // E:MEMORY_DEVICE_<slot>_<property>=<value>
    constexpr std::string_view prefix = "E:MEMORY_DEVICE_";
    std::map<unsigned, std::map<std::string, std::string>> slots;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t equals = line.find('=');
        if (!line.starts_with(prefix) || equals == std::string::npos) continue;
        unsigned slot = 0;
        const char* end = line.data() + equals;
        const auto read = std::from_chars(line.data() + prefix.size(), end, slot);
        if (read.ec == std::errc() && read.ptr != end && *read.ptr == '_')
            slots[slot][std::string(read.ptr + 1, end)] = line.substr(equals + 1);
    }
    std::vector<MemoryModule> modules;
    for (auto& [number, properties] : slots) {
        // An empty slot says PRESENT=0 and has no size.
        if (properties["PRESENT"] == "0" || properties["SIZE"].empty() ||
            nonvolatile_types().contains(properties["TYPE"]))
            continue;
        const std::string& rate = properties["CONFIGURED_SPEED_MTS"].empty()
                                      ? properties["SPEED_MTS"]
                                      : properties["CONFIGURED_SPEED_MTS"];
        modules.push_back({properties["LOCATOR"], properties["BANK_LOCATOR"],
                           1e6 * whole_number(rate), whole_number(properties["DATA_WIDTH"]),
                           properties["TYPE"]});
    }
    return modules;
}

std::optional<int> channels_named(const std::vector<MemoryModule>& modules) {
    // Two forms of locators name a channel. channel_word matches the word CHANNEL and a letter or
    // number: "P0 CHANNEL A", "ChannelA-DIMM0", "P0_Node1_Channel2_Dimm0". dimm_letter matches
    // DIMM, the channel's letter and the slot's digit: "CPU1_DIMM_A1", "P2-DIMMF1". "A1" and
    // "DIMM 3" name no channel.
    static const std::regex channel_word("^(.*)channel[ _-]*([0-9]+|[a-z])(?![a-z])",
                                         std::regex::icase),
        dimm_letter("^(.*)dimm[ _-]*([a-z])[0-9]$", std::regex::icase);
    std::set<std::string> channels;
    for (const MemoryModule& module : modules) {
        std::smatch match;
        const std::string* matching = nullptr;
        for (const std::string* text : {&module.bank, &module.locator})
            if (matching == nullptr && text->size() <= longest_name &&
                std::regex_search(*text, match, channel_word))
                matching = text;
        if (matching == nullptr && module.locator.size() <= longest_name &&
            std::regex_search(module.locator, match, dimm_letter))
            matching = &module.locator;
        if (matching == nullptr) return std::nullopt;
        channels.insert(match[1].str() + " " + match[2].str());
    }
    return channels.empty() ? std::nullopt : std::optional(static_cast<int>(channels.size()));
}

std::optional<MemoryModules> memory_modules() {
    const std::string table = read_whole_file(sysfs("firmware/dmi/tables/DMI"));
    auto modules =
        modules_of_table({reinterpret_cast<const std::uint8_t*>(table.data()), table.size()});
    if (modules.empty())
        modules = modules_of_udev(read_whole_file(under_root("/run/udev/data/+dmi:id")));
    if (modules.empty()) return std::nullopt;
    MemoryModules all{.modules = static_cast<int>(modules.size()), .channels = edac_channels()};
    if (!all.channels) all.channels = channels_named(modules);
    all.transfer_rate = modules.front().transfer_rate;
    all.width = modules.front().data_bits / 8.0;
    for (const MemoryModule& module : modules) {
        all.transfer_rate = std::min(all.transfer_rate, module.transfer_rate);
        all.width = std::min(all.width, module.data_bits / 8.0);
        if (module.type != modules.front().type) return std::nullopt;
    }
    if (all.transfer_rate <= 0 || all.width <= 0) return std::nullopt;
    return all;
}

}  // namespace assay
