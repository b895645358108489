#include "profile/analyse/about.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace assay::heap {
namespace {

void read_nodes(const ChunkHead& head, const Bytes& payload, About& about) {
    Reader in(payload);
    if (about.nodes.size() < head.first + head.count) about.nodes.resize(head.first + head.count);
    std::uint64_t address = 0;
    for (std::uint32_t k = 0; k < head.count && in.ok(); ++k) {
        const auto parent = static_cast<std::uint32_t>(in.varint());
        address += static_cast<std::uint64_t>(unzigzag(in.varint()));
        if (in.ok() && parent < head.first + k) about.nodes[head.first + k] = {parent, address};
    }
}

void read_samples(const ChunkHead& head, const Bytes& payload, About& about) {
    Reader in(payload);
    std::uint64_t time = head.first >> time_shift;
    std::int64_t pages[2] = {0, 0};
    for (std::uint32_t k = 0; k < head.count; ++k) {
        time += in.varint();
        for (std::int64_t& one : pages) one += unzigzag(in.varint());
        if (!in.ok()) return;
        about.samples.push_back({time << time_shift, pages[0], pages[1]});
    }
}

struct HashStand {
    std::size_t operator()(const Stand& one) const { return XXH3_64bits(&one, sizeof one); }
};
static_assert(std::has_unique_object_representations_v<Stand>);
using Stands = std::unordered_map<Stand, std::uint32_t, HashStand>;

// Their times are nanoseconds until all is read. Few places touch many pages: each is kept once.
void read_touches(const ChunkHead& head, const Bytes& payload, About& about, Stands& known) {
    about.watched_touches = true;
    Reader in(payload);
    const auto next = [&in](std::uint64_t before) {
        return before + static_cast<std::uint64_t>(unzigzag(in.varint()));
    };
    Touch one{head.first, 0, 0, 0};
    Stand stand;
    for (std::uint32_t k = 0; k < head.count; ++k) {
        one.time = next(one.time);
        one.tid = static_cast<std::uint32_t>(in.varint());
        stand.pc = next(stand.pc);
        one.address = next(one.address);
        for (std::uint64_t& word : stand.words) word = next(word);
        if (!in.ok()) return;
        const auto [found, is_new] =
            known.try_emplace(stand, static_cast<std::uint32_t>(about.stands.size()));
        if (is_new) about.stands.push_back(stand);
        one.stand = found->second;
        about.touches.push_back(one);
    }
}

// The memory that our own hooks take is none of the program's.
void leave_out_own(About& about, const Symbols& symbols) {
    std::vector<bool> is_own;
    for (const Stand& stand : about.stands)
        is_own.push_back(symbols.object_at(stand.pc).ends_with("/libassay-heap.so"));
    std::erase_if(about.touches, [&](const Touch& one) { return is_own[one.stand]; });
}

void order_touches(About& about) {
    const double ns_per_tick = about.seconds_per_tick() * 1e9;
    for (Touch& one : about.touches) {
        const double since =
            static_cast<double>(static_cast<std::int64_t>(one.time - about.process.start_ns));
        one.time =
            about.process.start_ticks +
            static_cast<std::uint64_t>(ns_per_tick > 0 && since > 0 ? since / ns_per_tick : 0);
    }
    std::ranges::stable_sort(about.touches, {}, &Touch::time);
}

// "TID name"
void read_thread(std::uint32_t serial, const std::string& text, About& about) {
    const std::size_t space = text.find(' ');
    if (space == std::string::npos) return;
    about.threads[static_cast<std::uint32_t>(std::strtoul(text.c_str(), nullptr, 10))] = serial;
    about.names[serial] = text.substr(space + 1);
}

// From the first to the last event of a raw chunk.
void widen(About& about, const Bytes& payload, const ChunkHead& head) {
    struct {
        About& about;
        void event(const Event& one) const {
            about.first = std::min(about.first, one.time);
            about.last = std::max(about.last, one.time);
        }
        void cost(std::uint32_t) const {}
        void text(Kind, std::uint64_t, std::span<const std::uint8_t>) const {}
    } sink{about};
    expand(std::span(reinterpret_cast<const std::uint64_t*>(payload.data()),
                     payload.size() / sizeof(std::uint64_t)),
           head.first, sink);
}

void read_text(Kind kind, std::uint32_t thread, const std::string& text, About& about,
               Symbols& symbols) {
    if (kind == Kind::modules) symbols.add_modules(text);
    else if (kind == Kind::thread) read_thread(thread, text, about);
    else if (kind == Kind::python) about.python.read(text);
}

// A C stack that is named with each of its Python stacks is not itself named by any event.
void note_named(TraceReader& trace, About& about) {
    about.python.named.resize(about.nodes.size());
    Bytes payload;
    std::vector<Event> events;
    for (const ChunkPlace& place : trace.chunks()) {
        if (place.head.kind != ChunkKind::events && place.head.kind != ChunkKind::raw) continue;
        if (!read_events(trace, place, payload, events)) continue;
        for (const Event& event : events)
            if (event.stack < about.python.named.size()) about.python.named[event.stack] = true;
    }
}

}  // namespace

double About::seconds_per_tick() const {
    const auto ticks = static_cast<double>(process.end_ticks - process.start_ticks);
    return ticks > 0 ? static_cast<double>(process.end_ns - process.start_ns) * 1e-9 / ticks : 0;
}

double About::seconds_at(std::uint64_t ticks) const {
    return static_cast<double>(static_cast<std::int64_t>(ticks - process.start_ticks)) *
           seconds_per_tick();
}

About read_about(TraceReader& trace, Symbols& symbols) {
    About about;
    Stands stands;
    Bytes payload;
    for (const ChunkPlace& place : trace.chunks()) {
        const ChunkHead& head = place.head;
        if (head.kind == ChunkKind::events) {
            about.first = std::min(about.first, head.first);
            about.last = std::max(about.last, head.last);
            continue;
        }
        if (!trace.read(place, payload)) {
            ++about.unreadable;
            continue;
        }
        const std::string text(payload.begin(), payload.end());
        switch (head.kind) {
            case ChunkKind::process:
                if (payload.size() < sizeof about.process) break;
                std::memcpy(&about.process, payload.data(), sizeof about.process);
                about.program = text.substr(sizeof about.process);
                if (const std::size_t end = about.program.find('\0'); end != std::string::npos) {
                    about.rank = about.program.substr(end + 1);
                    about.program.resize(end);
                }
                if (const std::size_t end = about.rank.find('\0'); end != std::string::npos) {
                    about.ran = std::strtod(about.rank.c_str() + end + 1, nullptr) * 1e-9;
                    about.rank.resize(end);
                }
                if (about.process.page_bytes == 0) about.process.page_bytes = 4096;
                break;
            case ChunkKind::nodes: read_nodes(head, payload, about); break;
            case ChunkKind::modules: symbols.add_modules(text); break;
            case ChunkKind::code: symbols.add_code(text); break;
            case ChunkKind::thread: read_thread(head.thread, text, about); break;
            case ChunkKind::python: about.python.read(text); break;
            case ChunkKind::samples: read_samples(head, payload, about); break;
            case ChunkKind::faults: read_touches(head, payload, about, stands); break;
            case ChunkKind::mappings:
                about.mappings = text;
                about.mappings_time = head.first;
                break;
            case ChunkKind::raw:
                read_texts(payload, [&](Kind kind, std::span<const std::uint8_t> bytes) {
                    read_text(kind, head.thread, std::string(bytes.begin(), bytes.end()), about,
                              symbols);
                });
                widen(about, payload, head);
                break;
            case ChunkKind::events: break;
            default: ++about.unreadable;  // of a version before, or after
        }
    }
    // Killed before its last word: the clocks of its last event.
    if (about.last > about.process.end_ticks) about.process.end_ticks = about.last;
    leave_out_own(about, symbols);
    order_touches(about);
    if (about.python.is_there()) note_named(trace, about);
    return about;
}

}  // namespace assay::heap
