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
constexpr std::uint64_t oldest = 2;  // version of the format that is understood
constexpr stack::StackId first_stack = stack::lost_root + 1;

// The lines of a file that zstd has packed.
class Lines {
public:
    explicit Lines(const std::string& path)
        : file_(std::fopen(path.c_str(), "rb"), std::fclose),
          context_(ZSTD_createDCtx(), ZSTD_freeDCtx) {
        if (file_ == nullptr) throw Error("cannot read " + path + ": " + std::strerror(errno));
    }
    // False at the end; what follows a damaged place is left out, and `damaged` says so.
    bool next(std::string_view& line) {
        for (;;) {
            if (const std::size_t end = text_.find('\n', at_); end != std::string::npos) {
                line = std::string_view(text_).substr(at_, end - at_);
                at_ = end + 1;
                return true;
            }
            text_.erase(0, at_);
            at_ = 0;
            if (!more()) return false;
        }
    }
    bool damaged() const { return damaged_; }
    std::uint64_t bytes() const { return bytes_; }  // of the file, read so far

private:
    bool more() {
        if (in_.pos == in_.size) {
            in_ = {packed_, std::fread(packed_, 1, sizeof packed_, file_.get()), 0};
            bytes_ += in_.size;
            if (in_.size == 0) return false;
        }
        const std::size_t had = text_.size();
        text_.resize(had + ZSTD_DStreamOutSize());
        ZSTD_outBuffer out{text_.data() + had, text_.size() - had, 0};
        const std::size_t status = ZSTD_decompressStream(context_.get(), &out, &in_);
        text_.resize(had + out.pos);
        damaged_ = ZSTD_isError(status) != 0;
        return !damaged_;
    }

    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
    std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context_;
    char packed_[1 << 16];
    ZSTD_inBuffer in_{packed_, 0, 0};
    std::string text_;
    std::size_t at_ = 0;
    std::uint64_t bytes_ = 0;
    bool damaged_ = false;
};

// The hexadecimal numbers of a line, after its letter.
class Numbers {
public:
    explicit Numbers(std::string_view line)
        : at_(line.data() + 1), end_(line.data() + line.size()) {}
    bool next(std::uint64_t& value) {
        while (at_ < end_ && *at_ == ' ') ++at_;
        const auto [stop, error] = std::from_chars(at_, end_, value, 16);
        at_ = stop;
        return error == std::errc();
    }
    std::uint64_t get() {
        std::uint64_t value = 0;
        next(value);
        return value;
    }

private:
    const char *at_, *end_;
};

// What the file says of stacks and sizes; its first reading.
class Tables {
public:
    Tables(Lines& lines, const std::string& path, About& about, Symbols& symbols)
        : symbols_(symbols) {
        std::string_view line;
        if (!lines.next(line) || line.empty() || line[0] != 'v' || version(line) < oldest)
            throw Error(path + " is no file of heaptrack's, or of too old a version",
                        "it must be heaptrack.PROGRAM.PID.zst");
        about.nodes.resize(first_stack);
        for (; lines.next(line);) take(line, about);
        about.first = 0;
        about.process.end_ns = about.process.end_ticks = about.last =
            std::max<std::uint64_t>(about.last, 1);
        about.process.complete = lines.damaged() ? 0 : 1;
    }
    struct Request {
        std::uint64_t size;
        stack::StackId stack;
    };
    const std::vector<Request>& requests() const { return requests_; }

private:
    static std::uint64_t version(std::string_view line) {
        Numbers numbers(line);
        numbers.get();
        return numbers.get();
    }
    void take(std::string_view line, About& about) {
        if (line.empty()) return;
        Numbers numbers(line);
        switch (line[0]) {
            case 'X': about.program = line.size() > 2 ? line.substr(2) : ""; break;
            case 's': {
                numbers.get();  // its length
                const std::size_t text = line.find(' ', 2);
                strings_.emplace_back(text == std::string_view::npos ? "" : line.substr(text + 1));
                break;
            }
            case 'i': know(numbers); break;
            case 't': {
                const std::uint64_t instruction = numbers.get(), parent = numbers.get();
                const auto outer = static_cast<stack::StackId>(
                    parent == 0 ? stack::complete_root : first_stack + parent - 1);
                about.nodes.push_back(
                    {outer < about.nodes.size() ? outer : stack::lost_root, instruction});
                break;
            }
            case 'a': {
                const std::uint64_t size = numbers.get(), stack = numbers.get();
                requests_.push_back(
                    {size, static_cast<stack::StackId>(stack == 0 ? stack::lost_root
                                                                  : first_stack + stack - 1)});
                break;
            }
            case 'c': about.last = std::max(about.last, numbers.get() * ns_in_ms); break;
            default: break;
        }
    }
    // Instructions are known by their number in the file, which stands for their address.
    void know(Numbers& numbers) {
        const std::uint64_t address = numbers.get();
        const std::string& module = text(numbers.get());
        std::vector<Place> places;
        for (std::uint64_t function = 0; numbers.next(function);) {
            const std::uint64_t file = numbers.get(), line = numbers.get();
            places.push_back({text(function), text(file), static_cast<int>(line), module, true});
        }
        std::erase_if(places, [](const Place& place) { return place.function.empty(); });
        if (places.empty())
            places.push_back(
                {fmt::format("{}@0x{:x}", module.substr(module.rfind('/') + 1), address), "", 0,
                 module, false});
        places.back().inlined = false;
        symbols_.know(++instructions_, std::move(places));
    }
    const std::string& text(std::uint64_t number) const {
        static const std::string none;
        return number == 0 || number > strings_.size() ? none : strings_[number - 1];
    }

    Symbols& symbols_;
    std::vector<std::string> strings_;
    std::vector<Request> requests_;
    std::uint64_t instructions_ = 0;
};

// What has happened, its second reading.
void replay(Lines& lines, const std::vector<Tables::Request>& requests, Analysis& analysis) {
    std::vector<std::vector<std::uint64_t>> live(requests.size());  // names of blocks
    std::uint64_t time = 0, blocks = 0;
    const auto event = [&](Kind kind, std::uint64_t name, std::uint64_t size,
                           stack::StackId stack) {
        analysis.add(0,
                     {time, name | static_cast<std::uint64_t>(kind) << kind_shift, size, stack, 0});
    };
    for (std::string_view line; lines.next(line);) {
        if (line.empty()) continue;
        Numbers numbers(line);
        if (line[0] == 'c') {
            time = numbers.get() * ns_in_ms;
        } else if (line[0] == '+' || line[0] == '-') {
            const std::uint64_t number = numbers.get();
            if (number >= requests.size()) continue;
            if (line[0] == '+') {
                live[number].push_back(name_block(0, blocks++));
                event(Kind::malloc, live[number].back(), requests[number].size,
                      requests[number].stack);
            } else if (!live[number].empty()) {
                event(Kind::free, live[number].back(), 0, requests[number].stack);
                live[number].pop_back();
            }
        }
    }
}

void read_samples(Lines& lines, About& about) {
    std::uint64_t time = 0;
    for (std::string_view line; lines.next(line);) {
        if (line.empty()) continue;
        Numbers numbers(line);
        if (line[0] == 'I')
            about.process.page_bytes =
                static_cast<std::uint32_t>(std::max<std::uint64_t>(1, numbers.get()));
        else if (line[0] == 'c') time = numbers.get() * ns_in_ms;
        else if (line[0] == 'R')
            about.samples.push_back({time, 0, static_cast<std::int64_t>(numbers.get())});
    }
}

}  // namespace

void import_heaptrack(const std::string& path, std::FILE* to) {
    About about;
    Symbols symbols;
    Lines first(path), second(path), third(path);
    const Tables tables(first, path, about, symbols);
    read_samples(second, about);
    Analysis analysis(about, symbols);
    replay(third, tables.requests(), analysis);
    analysis.tell({.source = "heaptrack",
                   .bytes = first.bytes(),
                   .damaged = first.damaged() ? 1u : 0u,
                   .unreadable = 0},
                  to);
}

}  // namespace assay::heap
