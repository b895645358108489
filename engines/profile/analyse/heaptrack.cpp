// Reads heaptrack files in three passes: tables, memory samples, events.
#include "profile/analyse/heaptrack.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "profile/analyse/analyse.hpp"
#include "profile/analyse/packed_lines.hpp"

namespace assay::heap {
namespace {

constexpr std::uint64_t ns_in_ms = 1'000'000;
constexpr std::uint64_t min_version = 2, max_version = 3;  // of the file format
constexpr std::uint64_t sized_strings = 3;                 // the first version with their length
// heaptrack_interpret writes it at the end of every file since its first version.
constexpr std::string_view last_lines = "# strings: ";
// Instructions are numbered from 1 on; the stack tree reserves the lowest addresses.
constexpr std::uint64_t first_address = stack::unused_address + 1;
constexpr stack::StackId first_stack = stack::lost_root + 1;

// Reads the hexadecimal numbers of a line, after its first letter.
class HexFields {
public:
    explicit HexFields(std::string_view line)
        : position_(line.data() + 1), end_(line.data() + line.size()) {}
    bool next(std::uint64_t& value) {
        while (position_ < end_ && *position_ == ' ') ++position_;
        const auto [stop, error] = std::from_chars(position_, end_, value, 16);
        position_ = stop;
        return error == std::errc();
    }
    std::uint64_t get() {
        std::uint64_t value = 0;
        next(value);
        return value;
    }

private:
    const char *position_, *end_;
};

// First pass: reads stacks, instructions, and the size and stack of each kind of allocation.
class FileTables {
public:
    FileTables(PackedLines& lines, const std::string& path, TraceMetadata& metadata,
               Symbols& symbols)
        : symbols_(symbols) {
        std::string_view line;
        const bool has_line = lines.next(line);
        if (!has_line && lines.cut_off() &&
            lines.rest().substr(0, 2) == std::string_view("v ").substr(0, lines.rest().size()))
            throw Error(path + " ends before its first line", "copy it again, it is cut short");
        if (!has_line || !line.starts_with("v "))
            throw Error(path + " is not a heaptrack file", "expected heaptrack.PROGRAM.PID.zst");
        version_ = version(line);
        if (version_ < min_version || version_ > max_version)
            throw Error(fmt::format("{} is a heaptrack file of version {}", path, version_),
                        fmt::format("versions {} and {} are read; record with heaptrack 1.0 to 1.5",
                                    min_version, max_version));
        metadata.nodes.resize(first_stack);
        while (lines.next(line)) {
            if (line.starts_with("x ") || line.starts_with("m "))
                throw Error(
                    path + " is a raw file of heaptrack, without names of functions",
                    "interpret it where it was recorded: zstdcat RAW | heaptrack_interpret > FILE, "
                    "which heaptrack keeps in its lib/heaptrack/libexec");
            if (line.starts_with("v "))
                throw Error(path + " is several files of heaptrack behind each other",
                            "give each alone");
            has_end_ = has_end_ || line.starts_with(last_lines);
            parse_line(line, metadata);
        }
        metadata.first_event = 0;
        metadata.process.end_ns = metadata.process.end_ticks = metadata.last_event =
            std::max<std::uint64_t>(metadata.last_event, 1);
        metadata.process.end_state = lines.damaged() || is_cut_off(lines) ? 0 : 1;
    }
    // The file lacks its end, so blocks that are not freed in it may be freed later.
    bool is_cut_off(const PackedLines& lines) const { return lines.cut_off() || !has_end_; }
    struct AllocationInfo {
        std::uint64_t size;
        stack::StackId stack;
    };
    const std::vector<AllocationInfo>& allocations() const { return allocations_; }

private:
    // Files of version 1 have no number, or heaptrack's own version alone.
    static std::uint64_t version(std::string_view line) {
        HexFields numbers(line);
        numbers.get();
        std::uint64_t number = 1;
        numbers.next(number);
        return number;
    }
    void parse_line(std::string_view line, TraceMetadata& metadata) {
        if (line.empty()) return;
        HexFields numbers(line);
        switch (line[0]) {
            case 'X': metadata.program = line.size() > 2 ? line.substr(2) : ""; break;
            case 's': {
                const std::size_t length_end = version_ >= sized_strings ? line.find(' ', 2) : 1;
                strings_.emplace_back(length_end < line.size() ? line.substr(length_end + 1)
                                                               : std::string_view());
                break;
            }
            case 'i': add_instruction(numbers); break;
            case 't': {
                const std::uint64_t instruction = numbers.get(), parent = numbers.get();
                const bool is_known = instruction > 0 && instruction <= instructions_;
                const auto parent_stack = static_cast<stack::StackId>(
                    parent == 0 ? stack::complete_root : first_stack + parent - 1);
                metadata.nodes.push_back(
                    {parent_stack < metadata.nodes.size() ? parent_stack : stack::lost_root,
                     is_known ? first_address + instruction - 1 : stack::unused_address});
                break;
            }
            case 'a': {
                const std::uint64_t size = numbers.get(), stack = numbers.get();
                allocations_.push_back(
                    {size, static_cast<stack::StackId>(stack == 0 ? stack::lost_root
                                                                  : first_stack + stack - 1)});
                break;
            }
            case 'c':
                metadata.last_event = std::max(metadata.last_event, numbers.get() * ns_in_ms);
                break;
            default: break;
        }
    }
    // Adds an instruction. Its number in the file serves as its address.
    void add_instruction(HexFields& numbers) {
        const std::uint64_t address = numbers.get();
        const std::string& module = text(numbers.get());
        std::vector<Location> locations;
        for (std::uint64_t function = 0; numbers.next(function);) {
            const std::uint64_t file = numbers.get(), line = numbers.get();
            locations.push_back({text(function), text(file), static_cast<int>(line), module, true});
        }
        std::erase_if(locations,
                      [](const Location& location) { return location.function.empty(); });
        if (locations.empty())
            locations.push_back(
                {fmt::format("{}@0x{:x}", module.substr(module.rfind('/') + 1), address), "", 0,
                 module, false});
        locations.back().inlined = false;
        symbols_.set_locations(first_address + instructions_++, std::move(locations));
    }
    const std::string& text(std::uint64_t number) const {
        static const std::string empty;
        return number == 0 || number > strings_.size() ? empty : strings_[number - 1];
    }

    Symbols& symbols_;
    std::vector<std::string> strings_;
    std::vector<AllocationInfo> allocations_;
    std::uint64_t instructions_ = 0, version_ = 0;
    bool has_end_ = false;
};

// Third pass: passes the events to the analysis.
void replay_events(PackedLines& lines, const std::vector<FileTables::AllocationInfo>& allocations,
                   Analysis& analysis) {
    std::vector<std::vector<std::uint64_t>> live(allocations.size());  // numbers of live blocks
    std::uint64_t time = 0, next_block = 0;
    const auto event = [&](Kind kind, std::uint64_t block, std::uint64_t size,
                           stack::StackId stack) {
        analysis.add(
            0, {time, block | static_cast<std::uint64_t>(kind) << kind_shift, size, stack, 0});
    };
    for (std::string_view line; lines.next(line);) {
        if (line.empty()) continue;
        HexFields numbers(line);
        if (line[0] == 'c') {
            time = numbers.get() * ns_in_ms;
        } else if (line[0] == '+' || line[0] == '-') {
            const std::uint64_t number = numbers.get();
            if (number >= allocations.size()) continue;
            if (line[0] == '+') {
                live[number].push_back(block_id(0, next_block++));
                event(Kind::malloc, live[number].back(), allocations[number].size,
                      allocations[number].stack);
            } else if (!live[number].empty()) {
                event(Kind::free, live[number].back(), 0, allocations[number].stack);
                live[number].pop_back();
            }
        }
    }
}

// Second pass: reads the samples of resident memory.
void read_samples(PackedLines& lines, TraceMetadata& metadata) {
    std::uint64_t time = 0;
    for (std::string_view line; lines.next(line);) {
        if (line.empty()) continue;
        HexFields numbers(line);
        if (line[0] == 'I') {
            metadata.process.page_bytes = static_cast<std::uint32_t>(numbers.get());
            metadata.unreadable_chunks += !check_page_bytes(metadata.process.page_bytes);
        } else if (line[0] == 'c') time = numbers.get() * ns_in_ms;
        else if (line[0] == 'R')
            metadata.samples.push_back({time, 0, static_cast<std::int64_t>(numbers.get()), 0});
    }
}

}  // namespace

void import_heaptrack(const std::string& path, std::FILE* output) {
    TraceMetadata metadata;
    Symbols symbols;
    PackedLines table_lines(path), sample_lines(path), event_lines(path);
    const FileTables tables(table_lines, path, metadata, symbols);
    read_samples(sample_lines, metadata);
    Analysis analysis(metadata, symbols);
    replay_events(event_lines, tables.allocations(), analysis);
    analysis.write_json({.imported_from = "heaptrack",
                         .bytes = table_lines.bytes(),
                         .damaged_bytes = table_lines.damaged() ? 1u : 0u,
                         .unreadable_chunks = 0,
                         .cut_off = tables.is_cut_off(table_lines)},
                        output);
}

}  // namespace assay::heap
