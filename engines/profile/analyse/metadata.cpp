// Reads the chunks of a trace other than events.
#include "profile/analyse/metadata.hpp"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "profile/heap/event_decoder.hpp"

namespace assay::heap {
namespace {

// The maximum number of nodes that a trace can have: each takes at least two bytes of a chunk, and
// stack_bits limits their numbers. Damaged bytes may have held as many more as zstd can compress
// into them.
std::uint64_t max_nodes(const TraceReader& trace) {
    constexpr std::uint64_t compression = 1024, numberable_nodes = std::uint64_t{1} << stack_bits;
    std::uint64_t limit = stack::lost_root + 1 + compression * trace.damaged_bytes();
    for (const ChunkRef& chunk : trace.chunks())
        if (chunk.header.kind == ChunkKind::nodes)
            limit += std::min(chunk.header.count, chunk.header.raw_bytes / 2);
    return std::min(limit, numberable_nodes);
}

// Returns false if the header's figures are impossible.
bool read_nodes(const ChunkHeader& header, const Bytes& payload, std::uint64_t limit,
                TraceMetadata& metadata) {
    if (header.count > limit || header.first > limit - header.count) return false;
    VarintReader reader(payload);
    if (metadata.nodes.size() < header.first + header.count)
        metadata.nodes.resize(header.first + header.count);
    std::uint64_t address = 0;
    for (std::uint32_t k = 0; k < header.count && reader.ok(); ++k) {
        const auto parent = static_cast<std::uint32_t>(reader.varint());
        address += static_cast<std::uint64_t>(unzigzag(reader.varint()));
        if (reader.ok() && parent < header.first + k)
            metadata.nodes[header.first + k] = {parent, address};
    }
    return true;
}

void read_samples(const ChunkHeader& header, const Bytes& payload, TraceMetadata& metadata) {
    VarintReader reader(payload);
    std::uint64_t time = header.first >> time_shift;
    std::int64_t pages[3] = {0, 0, 0};
    for (std::uint32_t k = 0; k < header.count; ++k) {
        time += reader.varint();
        for (std::int64_t& count : pages) count += unzigzag(reader.varint());
        if (!reader.ok()) return;
        metadata.samples.push_back({time << time_shift, pages[0], pages[1], pages[2]});
    }
}

struct HashFaultSite {
    std::size_t operator()(const FaultSite& site) const { return XXH3_64bits(&site, sizeof site); }
};
static_assert(std::has_unique_object_representations_v<FaultSite>);
using SiteNumbers = std::unordered_map<FaultSite, std::uint32_t, HashFaultSite>;

// Reads page faults with their times in nanoseconds, which convert_page_fault_times() converts
// later. Each site is stored once, since few sites touch many pages.
void read_page_faults(const ChunkHeader& header, const Bytes& payload, TraceMetadata& metadata,
                      SiteNumbers& numbers) {
    metadata.has_page_faults = true;
    VarintReader reader(payload);
    const auto next_value = [&reader](std::uint64_t before) {
        return before + static_cast<std::uint64_t>(unzigzag(reader.varint()));
    };
    PageFault fault{header.first, 0, 0, 0};
    FaultSite site;
    for (std::uint32_t k = 0; k < header.count; ++k) {
        fault.time = next_value(fault.time);
        fault.tid = static_cast<std::uint32_t>(reader.varint());
        site.pc = next_value(site.pc);
        fault.address = next_value(fault.address);
        for (std::uint64_t& word : site.words) word = next_value(word);
        if (!reader.ok()) return;
        const auto [entry, is_new] =
            numbers.try_emplace(site, static_cast<std::uint32_t>(metadata.fault_sites.size()));
        if (is_new) metadata.fault_sites.push_back(site);
        fault.site = entry->second;
        metadata.page_faults.push_back(fault);
    }
}

// Removes page faults of the profiler's own memory.
void remove_hook_faults(TraceMetadata& metadata, const Symbols& symbols) {
    std::vector<bool> in_hooks;
    in_hooks.reserve(metadata.fault_sites.size());
    for (const FaultSite& site : metadata.fault_sites)
        in_hooks.push_back(symbols.object_of(site.pc).ends_with("/libassay-heap.so"));
    std::erase_if(metadata.page_faults,
                  [&](const PageFault& fault) { return in_hooks[fault.site]; });
}

// Ticks or ns: a century at 300 MHz. Larger values are invalid.
constexpr double max_time = 1e18;

// A killed recorder writes no end time; that of the last event replaces it, at the rate of the
// clocks up to then.
void extend_process_time(ProcessInfo& process, std::uint64_t last_event) {
    if (last_event <= process.end_ticks) return;
    const std::uint64_t ticks = process.end_ticks - process.start_ticks;
    if (ticks > 0)
        process.end_ns += static_cast<std::uint64_t>(std::min(
            static_cast<double>(process.end_ns - process.start_ns) *
                static_cast<double>(last_event - process.end_ticks) / static_cast<double>(ticks),
            max_time));
    process.end_ticks = last_event;
}

void convert_page_fault_times(TraceMetadata& metadata) {
    const double ns_per_tick = metadata.seconds_per_tick() * 1e9;
    for (PageFault& fault : metadata.page_faults) {
        const double elapsed_ns = static_cast<double>(
                         static_cast<std::int64_t>(fault.time - metadata.process.start_ns)),
                     ticks = ns_per_tick > 0 && elapsed_ns > 0 ? elapsed_ns / ns_per_tick : 0;
        fault.time = metadata.process.start_ticks +
                     static_cast<std::uint64_t>(std::round(std::min(ticks, max_time)));
    }
    std::ranges::stable_sort(metadata.page_faults, {}, &PageFault::time);
}

// Reads "TID name".
void read_thread(std::uint32_t serial, const std::string& text, TraceMetadata& metadata) {
    const std::size_t space = text.find(' ');
    if (space == std::string::npos) return;
    metadata.thread_of_tid[static_cast<std::uint32_t>(std::strtoul(text.c_str(), nullptr, 10))] =
        serial;
    metadata.thread_names[serial] = text.substr(space + 1);
}

// Reads "path NUL reason NUL ...".
void read_unrecorded(const ChunkHeader& header, const std::string& text, TraceMetadata& metadata) {
    for (std::size_t position = 0; position < text.size();) {
        const std::size_t path_end = text.find('\0', position);
        const std::size_t end =
            path_end == std::string::npos ? path_end : text.find('\0', path_end + 1);
        if (end == std::string::npos) break;
        metadata.unrecorded.push_back(text.substr(position, path_end - position) + " " +
                                      text.substr(path_end + 1, end - path_end - 1));
        position = end + 1;
    }
    if (header.count > 0)
        metadata.unrecorded.push_back(std::to_string(header.count) + " more programs");
}

// Updates the times of the first and the last event from a raw chunk.
void add_event_times(TraceMetadata& metadata, const Bytes& payload, const ChunkHeader& header) {
    struct {
        TraceMetadata& metadata;
        void event(const Event& recorded) const {
            metadata.first_event = std::min(metadata.first_event, recorded.time);
            metadata.last_event = std::max(metadata.last_event, recorded.time);
        }
        void call_ticks(std::uint32_t) const {}
        void text(Kind, std::uint64_t, std::span<const std::uint8_t>) const {}
    } sink{metadata};
    decode_buffer(std::span(reinterpret_cast<const std::uint64_t*>(payload.data()),
                            payload.size() / sizeof(std::uint64_t)),
                  header.first, sink);
}

void read_text(Kind kind, std::uint32_t thread, const std::string& text, TraceMetadata& metadata,
               Symbols& symbols) {
    if (kind == Kind::modules) symbols.add_modules(text);
    else if (kind == Kind::thread) read_thread(thread, text, metadata);
    else if (kind == Kind::python) metadata.python.parse(text);
    else if (kind == Kind::mappings) metadata.mappings_at_end += text;
}

// Finds the stacks that events refer to. A C stack that is always joined with a Python stack is not
// among them.
void find_named_stacks(TraceReader& trace, TraceMetadata& metadata) {
    metadata.python.named_stacks.resize(metadata.nodes.size());
    Bytes payload;
    std::vector<Event> events;
    for (const ChunkRef& chunk : trace.chunks()) {
        if (chunk.header.kind != ChunkKind::events && chunk.header.kind != ChunkKind::raw) continue;
        if (!read_events(trace, chunk, payload, events)) continue;
        for (const Event& event : events)
            if (event.stack < metadata.python.named_stacks.size())
                metadata.python.named_stacks[event.stack] = true;
    }
}

}  // namespace

bool check_page_bytes(std::uint32_t& page_bytes) {
    constexpr std::uint32_t smallest = 4096, largest = 65536;  // x86-64; arm64, ppc64le
    if (std::has_single_bit(page_bytes) && page_bytes >= smallest && page_bytes <= largest)
        return true;
    page_bytes = smallest;
    return false;
}

double TraceMetadata::seconds_per_tick() const {
    const auto ticks = static_cast<double>(process.end_ticks - process.start_ticks);
    return ticks > 0 ? static_cast<double>(process.end_ns - process.start_ns) * 1e-9 / ticks : 0;
}

double TraceMetadata::seconds_at(std::uint64_t ticks) const {
    return static_cast<double>(static_cast<std::int64_t>(ticks - process.start_ticks)) *
           seconds_per_tick();
}

TraceMetadata read_metadata(TraceReader& trace, Symbols& symbols) {
    TraceMetadata metadata;
    const std::uint64_t limit = max_nodes(trace);
    SiteNumbers site_numbers;
    Bytes payload;
    for (const ChunkRef& chunk : trace.chunks()) {
        const ChunkHeader& header = chunk.header;
        if (header.kind == ChunkKind::events) {
            metadata.first_event = std::min(metadata.first_event, header.first);
            metadata.last_event = std::max(metadata.last_event, header.last);
            continue;
        }
        if (!trace.read(chunk, payload)) {
            ++metadata.unreadable_chunks;
            continue;
        }
        const std::string text(payload.begin(), payload.end());
        switch (header.kind) {
            case ChunkKind::process:
                if (payload.size() < sizeof metadata.process) break;
                std::memcpy(&metadata.process, payload.data(), sizeof metadata.process);
                metadata.program = text.substr(sizeof metadata.process);
                if (const std::size_t end = metadata.program.find('\0'); end != std::string::npos) {
                    metadata.rank = metadata.program.substr(end + 1);
                    metadata.program.resize(end);
                }
                if (const std::size_t end = metadata.rank.find('\0'); end != std::string::npos) {
                    metadata.attached_after =
                        std::strtod(metadata.rank.c_str() + end + 1, nullptr) * 1e-9;
                    metadata.rank.resize(end);
                }
                metadata.unreadable_chunks += !check_page_bytes(metadata.process.page_bytes);
                break;
            case ChunkKind::nodes:
                metadata.unreadable_chunks += !read_nodes(header, payload, limit, metadata);
                break;
            case ChunkKind::modules: symbols.add_modules(text); break;
            case ChunkKind::code: symbols.add_jit_functions(text); break;
            case ChunkKind::thread: read_thread(header.thread, text, metadata); break;
            case ChunkKind::python: metadata.python.parse(text); break;
            case ChunkKind::samples: read_samples(header, payload, metadata); break;
            case ChunkKind::faults:
                read_page_faults(header, payload, metadata, site_numbers);
                break;
            case ChunkKind::lost_faults: metadata.lost_page_faults = header.first; break;
            case ChunkKind::mappings: metadata.mappings = text; break;
            case ChunkKind::unrecorded: read_unrecorded(header, text, metadata); break;
            case ChunkKind::raw:
                read_texts(payload, [&](Kind kind, std::span<const std::uint8_t> bytes) {
                    read_text(kind, header.thread, std::string(bytes.begin(), bytes.end()),
                              metadata, symbols);
                });
                add_event_times(metadata, payload, header);
                break;
            case ChunkKind::events: break;
            default: ++metadata.unreadable_chunks;  // a kind of another version of the format
        }
    }
    if (metadata.mappings_at_end.ends_with("\n\n")) metadata.mappings = metadata.mappings_at_end;
    extend_process_time(metadata.process, metadata.last_event);
    remove_hook_faults(metadata, symbols);
    convert_page_fault_times(metadata);
    if (metadata.python.has_frames()) find_named_stacks(trace, metadata);
    return metadata;
}

}  // namespace assay::heap
