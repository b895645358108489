// Reads heaptrack files in three passes: tables, memory samples, events.
#include "profile/analyse/heaptrack.hpp"

#include <fmt/format.h>
#include <zstd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "profile/analyse/analyse.hpp"

namespace assay::heap {
namespace {

constexpr std::uint64_t ns_in_ms = 1'000'000;
constexpr std::uint64_t min_version = 2;  // of the file format
// Limits memory, since a few bytes of zstd may decompress to gigabytes. The longest valid lines are
// names of C++ functions.
constexpr std::size_t max_line_bytes = 1 << 20;
// Instructions are numbered from 1 on; the stack tree reserves the lowest addresses.
constexpr std::uint64_t first_address = stack::unused_address + 1;
constexpr stack::StackId first_stack = stack::lost_root + 1;

// Reads a zstd-compressed file line by line.
class LineReader {
public:
    explicit LineReader(const std::string& path)
        : file_(std::fopen(path.c_str(), "rb"), std::fclose),
          context_(ZSTD_createDCtx(), ZSTD_freeDCtx) {
        if (file_ == nullptr) throw Error("cannot read " + path + ": " + std::strerror(errno));
    }
    // Returns false at the end of the file, or if the file is damaged: see damaged().
    bool next(std::string_view& line) {
        for (std::size_t searched = offset_;;) {
            if (const std::size_t end = text_.find('\n', searched); end != std::string::npos) {
                line = std::string_view(text_).substr(offset_, end - offset_);
                offset_ = end + 1;
                return true;
            }
            text_.erase(0, offset_);
            offset_ = 0;
            searched = text_.size();
            if (searched > max_line_bytes) damaged_ = true;
            if (damaged_ || !read_more()) return false;
        }
    }
    bool damaged() const { return damaged_; }
    std::uint64_t bytes() const { return bytes_; }  // of the compressed file, read so far

private:
    bool read_more() {
        if (input_.pos == input_.size) {
            input_ = {compressed_, std::fread(compressed_, 1, sizeof compressed_, file_.get()), 0};
            bytes_ += input_.size;
            if (input_.size == 0) return false;
        }
        const std::size_t old_size = text_.size();
        text_.resize(old_size + ZSTD_DStreamOutSize());
        ZSTD_outBuffer output{text_.data() + old_size, text_.size() - old_size, 0};
        const std::size_t status = ZSTD_decompressStream(context_.get(), &output, &input_);
        text_.resize(old_size + output.pos);
        damaged_ = ZSTD_isError(status) != 0;
        return !damaged_;
    }

    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
    std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context_;
    char compressed_[1 << 16];
    ZSTD_inBuffer input_{compressed_, 0, 0};
    std::string text_;
    std::size_t offset_ = 0;
    std::uint64_t bytes_ = 0;
    bool damaged_ = false;
};

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
    FileTables(LineReader& lines, const std::string& path, TraceMetadata& metadata,
               Symbols& symbols)
        : symbols_(symbols) {
        std::string_view line;
        if (!lines.next(line) || line.empty() || line[0] != 'v' || version(line) < min_version)
            throw Error(path + " is not a heaptrack file of version 2 or later",
                        "expected heaptrack.PROGRAM.PID.zst");
        metadata.nodes.resize(first_stack);
        for (; lines.next(line);) parse_line(line, metadata);
        metadata.first_event = 0;
        metadata.process.end_ns = metadata.process.end_ticks = metadata.last_event =
            std::max<std::uint64_t>(metadata.last_event, 1);
        metadata.process.end_state = lines.damaged() ? 0 : 1;
    }
    struct AllocationInfo {
        std::uint64_t size;
        stack::StackId stack;
    };
    const std::vector<AllocationInfo>& allocations() const { return allocations_; }

private:
    static std::uint64_t version(std::string_view line) {
        HexFields numbers(line);
        numbers.get();
        return numbers.get();
    }
    void parse_line(std::string_view line, TraceMetadata& metadata) {
        if (line.empty()) return;
        HexFields numbers(line);
        switch (line[0]) {
            case 'X': metadata.program = line.size() > 2 ? line.substr(2) : ""; break;
            case 's': {
                numbers.get();  // the string's length
                const std::size_t text = line.find(' ', 2);
                strings_.emplace_back(text == std::string_view::npos ? "" : line.substr(text + 1));
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
    std::uint64_t instructions_ = 0;
};

// Third pass: passes the events to the analysis.
void replay_events(LineReader& lines, const std::vector<FileTables::AllocationInfo>& allocations,
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
void read_samples(LineReader& lines, TraceMetadata& metadata) {
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
    LineReader table_lines(path), sample_lines(path), event_lines(path);
    const FileTables tables(table_lines, path, metadata, symbols);
    read_samples(sample_lines, metadata);
    Analysis analysis(metadata, symbols);
    replay_events(event_lines, tables.allocations(), analysis);
    analysis.write_json({.imported_from = "heaptrack",
                         .bytes = table_lines.bytes(),
                         .damaged_bytes = table_lines.damaged() ? 1u : 0u,
                         .unreadable_chunks = 0},
                        output);
}

}  // namespace assay::heap
