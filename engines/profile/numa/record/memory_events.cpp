// Finds the PMU events of this machine that sample memory accesses, and reads their encoding from
// sysfs.
#include "profile/numa/record/memory_events.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "profile/numa/record/topology.hpp"

namespace assay::numa {
namespace {

namespace fs = std::filesystem;

// About 10 000 samples per second on a processor that makes 10^9 accesses per second. The period is
// prime, so that it does not resonate with loops. AMD's period must be a multiple of 16, and the
// processor randomises it.
constexpr std::uint64_t access_period = 100'003, instruction_period = 400'000, ibs_step = 16;

std::string first_line(const fs::path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

template <class T>
T parse_number(const std::string& text, const std::string& where) {
    const bool is_hexadecimal = text.starts_with("0x");
    const char *begin = text.data() + (is_hexadecimal ? 2 : 0), *end = text.data() + text.size();
    T value{};
    const auto [next, error] = std::from_chars(begin, end, value, is_hexadecimal ? 16 : 10);
    if (error != std::errc() || next != end)
        throw Error(fmt::format("{}: '{}' is not a number", where, text));
    return value;
}

// Writes a value into the configuration bits that a file of sysfs's folder "format" names:
// "config1:0-15" or "config:0-7,21".
void set_config_bits(std::uint64_t (&config)[3], const fs::path& format, std::uint64_t value) {
    const std::string line = first_line(format), where = format.string();
    const auto colon = line.find(':');
    const std::string field = line.substr(0, colon);
    const int index =
        field == "config" ? 0 : (field == "config1" ? 1 : (field == "config2" ? 2 : -1));
    if (index < 0 || colon == std::string::npos)
        throw Error(fmt::format("{}: '{}' names no bits", where, line));
    std::istringstream ranges(line.substr(colon + 1));
    for (std::string range; std::getline(ranges, range, ',');) {
        const auto dash = range.find('-');
        const auto first = parse_number<unsigned>(range.substr(0, dash), where);
        const unsigned last = dash == std::string::npos
                                  ? first
                                  : parse_number<unsigned>(range.substr(dash + 1), where);
        if (last > 63 || first > last)
            throw Error(fmt::format("{}: '{}' names no bits", where, line));
        for (unsigned bit = first; bit <= last; ++bit, value >>= 1)
            config[index] |= (value & 1) << bit;
    }
    if (value != 0) throw Error(fmt::format("{}: a value does not fit in '{}'", where, line));
}

// Reads an event from a file of sysfs's folder "events": "event=0xcd,umask=0x1,ldlat=3".
void read_event(const fs::path& device, const std::string& name, std::uint64_t (&config)[3]) {
    std::istringstream terms(first_line(device / "events" / name));
    for (std::string term; std::getline(terms, term, ',');) {
        const auto equals = term.find('=');
        const std::string key = term.substr(0, equals);
        if (key.empty() || key.find('/') != std::string::npos)
            throw Error(fmt::format("{}/events/{} is not understood", device.string(), name));
        set_config_bits(
            config, device / "format" / key,
            equals == std::string::npos
                ? 1
                : parse_number<std::uint64_t>(term.substr(equals + 1), device / "events" / name));
    }
}

MemoryEvent device_event(const fs::path& device, std::uint64_t period) {
    MemoryEvent event;
    event.type = parse_number<std::uint32_t>(first_line(device / "type"), device / "type");
    event.processors = parse_list(first_line(device / "cpus"));
    event.period = period;
    return event;
}

void add_intel(const fs::path& device, std::uint64_t period, std::vector<MemoryEvent>& events) {
    for (const auto& [name, operation] :
         {std::pair{"mem-loads", Operation::load}, {"mem-stores", Operation::store}}) {
        if (!fs::exists(device / "events" / name)) continue;
        MemoryEvent event = device_event(device, period != 0 ? period : access_period);
        event.name = fmt::format("{}/{}/", device.filename().string(), name);
        event.operation = operation;
        read_event(device, name, event.config);
        const std::string leader = std::string(name) + "-aux";
        if (fs::exists(device / "events" / leader)) {
            std::uint64_t config[3] = {};
            read_event(device, leader, config);
            event.leader = config[0];
        }
        events.push_back(std::move(event));
    }
}

void add_amd(const fs::path& device, std::uint64_t period, std::vector<MemoryEvent>& events) {
    if (!fs::exists(device / "type")) return;
    MemoryEvent event = device_event(device, period != 0 ? period : instruction_period);
    event.period = (event.period + ibs_step - 1) / ibs_step * ibs_step;
    event.name = device.filename().string() + "//";
    if (fs::exists(device / "format" / "cnt_ctl"))  // count instructions, not cycles
        set_config_bits(event.config, device / "format" / "cnt_ctl", 1);
    event.excludes_kernel = fs::exists(device / "format" / "swfilt");
    if (event.excludes_kernel) set_config_bits(event.config, device / "format" / "swfilt", 1);
    events.push_back(std::move(event));
}

}  // namespace

std::vector<MemoryEvent> find_memory_events(const std::string& devices, std::uint64_t period) {
    std::vector<MemoryEvent> events;
    for (const char* name : {"cpu", "cpu_core", "cpu_atom"})
        add_intel(fs::path(devices) / name, period, events);
    if (events.empty()) add_amd(fs::path(devices) / "ibs_op", period, events);
    if (events.empty())
        throw Error(
            fmt::format("no PMU here samples memory accesses: {} has neither mem-loads of cpu "
                        "(Intel) nor ibs_op (AMD), as in most virtual machines",
                        devices),
            "leave out --samples to see first touches, or count every access: --every-access, or "
            "compile with assay numa cc");
    return events;
}

}  // namespace assay::numa
