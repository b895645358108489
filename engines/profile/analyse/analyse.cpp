#include "profile/analyse/analyse.hpp"

#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <vector>

#include "core/error.hpp"
#include "profile/analyse/account.hpp"
#include "profile/trace/replay.hpp"
#include "profile/analyse/symbols.hpp"
#include "profile/stack/tree.hpp"

namespace assay::heap {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t steps = 500;  // of the timeline
constexpr std::array<const char*, 14> kind_names = {"",       "malloc", "calloc", "memalign", "realloc_from", "realloc", "free",
                                                    "map",    "unmap",  "remap",  "brk",      "modules",      "thread",  ""};

// What a trace says besides its events.
struct About {
    Process process{};
    std::string program;
    std::vector<stack::Node> nodes;
    std::unordered_map<std::uint32_t, std::string> names;  // of threads
    Json samples = Json::array();
    std::uint64_t first = ~std::uint64_t{0}, last = 0, unreadable = 0;

    double seconds_per_tick() const {
        const auto ticks = static_cast<double>(process.end_ticks - process.start_ticks);
        return ticks > 0 ? static_cast<double>(process.end_ns - process.start_ns) * 1e-9 / ticks : 0;
    }
    double seconds_at(std::uint64_t ticks) const {
        return static_cast<double>(static_cast<std::int64_t>(ticks - process.start_ticks)) * seconds_per_tick();
    }
};

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
    expand(std::span(reinterpret_cast<const Packed*>(payload.data()), payload.size() / sizeof(Packed)), head.first, sink);
}

About read_about(TraceReader& trace, Symbols& symbols) {
    About about;
    Bytes payload;
    std::string modules;
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
                break;
            case ChunkKind::nodes: read_nodes(head, payload, about); break;
            case ChunkKind::modules: symbols.add_modules(text); break;
            case ChunkKind::thread: about.names[head.thread] = text; break;
            case ChunkKind::samples: read_samples(head, payload, about); break;
            case ChunkKind::raw:
                read_texts(payload, [&](Kind kind, std::span<const std::uint8_t> bytes) {
                    const std::string words(bytes.begin(), bytes.end());
                    if (kind == Kind::modules) symbols.add_modules(words);
                    else about.names[head.thread] = words;
                });
                widen(about, payload, head);
                break;
            case ChunkKind::events: break;
        }
    }
    // Killed before its last word: the clocks of its last event.
    if (about.last > about.process.end_ticks) about.process.end_ticks = about.last;
    return about;
}

// The tree of stacks by function and line: what differs in its addresses alone is one. Parents come before children.
class CallTree {
public:
    CallTree(const About& about, const Account& account, Symbols& symbols) : about_(about), symbols_(symbols), at_(about.nodes.size(), -1) {
        for (std::uint32_t id = 0; id < account.stacks.size(); ++id)
            if (const StackAccount& one = account.stacks[id]; one.count > 0 || one.frees > 0 || one.reallocated > 0) add(id, one);
    }
    Json json() const {
        Json places = Json::array(), nodes = Json::array();
        for (const Place* one : places_) places.push_back({one->function, one->file, one->line, one->module, one->inlined});
        for (const Node& n : nodes_) {
            const StackAccount& s = n.own;
            nodes.push_back({n.parent, n.place, s.count, s.bytes, s.peak, s.at_peak, s.live, s.live_count, s.temporary,
                             s.reallocated, s.frees, s.lifetime, s.cost, s.costed, s.count > 0 ? s.least : 0, s.most});
        }
        return {{"places", places},
                {"fields", {"parent", "place", "count", "bytes", "own_peak", "at_peak", "leaked", "leaked_count", "temporary",
                            "reallocated", "frees", "lifetime", "cost", "costed", "least", "most"}},
                {"nodes", nodes}};
    }

private:
    struct Node {
        int parent, place;
        StackAccount own{};
    };

    void add(std::uint32_t id, const StackAccount& one) {
        StackAccount& own = nodes_[static_cast<std::size_t>(node_of(id))].own;
        if (own.count == 0) own.least = ~std::uint64_t{0};
        own.count += one.count;
        own.bytes += one.bytes;
        own.peak += one.peak;  // of several addresses on one line, which need not have been at once: an upper bound
        own.at_peak += one.at_peak;
        own.live += one.live;
        own.live_count += one.live_count;
        own.temporary += one.temporary;
        own.reallocated += one.reallocated;
        own.frees += one.frees;
        own.lifetime += one.lifetime;
        own.cost += one.cost;
        own.costed += one.costed;
        own.least = std::min(own.least, one.least);
        own.most = std::max(own.most, one.most);
    }

    // Of a stack; roots and what could not be read hang under two nodes of their own.
    int node_of(std::uint32_t id) {
        if (id >= at_.size() || id <= stack::lost_root) return child(-1, place_of(id == stack::complete_root ? "(start)" : "(unknown callers)"));
        if (at_[id] >= 0) return at_[id];
        const stack::Node& node = about_.nodes[id];
        const bool from_start = node.parent == stack::complete_root;
        int at = from_start ? -1 : node_of(node.parent);
        const std::vector<Place>& places = symbols_.find(node.address);
        for (auto place = places.rbegin(); place != places.rend(); ++place) at = child(at, place_of(*place));
        return at_[id] = at;
    }

    int child(int parent, int place) {
        const auto [found, is_new] = children_.try_emplace((static_cast<std::uint64_t>(parent + 1) << 32) | static_cast<std::uint32_t>(place), 0);
        if (is_new) {
            found->second = static_cast<int>(nodes_.size());
            nodes_.push_back({parent, place});
        }
        return found->second;
    }

    int place_of(const Place& place) {
        const std::string key = place.function + '\0' + place.file + '\0' + std::to_string(place.line) + '\0' + place.module;
        const auto [found, is_new] = place_numbers_.try_emplace(key, 0);
        if (is_new) {
            found->second = static_cast<int>(places_.size());
            places_.push_back(&place);
        }
        return found->second;
    }
    int place_of(const char* words) {
        static std::map<std::string, Place> own;
        return place_of(own.try_emplace(words, Place{words, "", 0, "", false}).first->second);
    }

    const About& about_;
    Symbols& symbols_;
    std::vector<int> at_;  // by stack
    std::vector<Node> nodes_;
    std::vector<const Place*> places_;
    std::unordered_map<std::uint64_t, int> children_;
    std::unordered_map<std::string, int> place_numbers_;
};

Json threads_json(const About& about, const Account& account) {
    Json threads = Json::array();
    for (const auto& [serial, one] : std::map(account.threads.begin(), account.threads.end())) {
        Json calls = Json::object();
        for (std::size_t k = 1; k < kind_names.size(); ++k)
            if (one.calls[k].count > 0)
                calls[kind_names[k]] = {{"count", one.calls[k].count}, {"seconds", one.calls[k].ticks() * about.seconds_per_tick()}};
        const auto name = about.names.find(serial);
        threads.push_back({{"thread", serial}, {"name", name != about.names.end() ? name->second : ""}, {"bytes", one.bytes},
                           {"foreign_frees", one.foreign_frees}, {"calls", calls}});
    }
    return threads;
}

Json timeline_json(const About& about, const Account& account) {
    Json samples = Json::array();
    for (const Json& one : about.samples) {
        const double page = about.process.page_bytes;
        samples.push_back({about.seconds_at(one[0]), one[1].get<double>() * page, one[2].get<double>() * page});
    }
    return {{"start", about.seconds_at(account.timeline.first)},
            {"step", static_cast<double>(account.timeline.step) * about.seconds_per_tick()},
            {"live", account.timeline.live},
            {"count", account.timeline.count},
            {"bytes", account.timeline.bytes},
            {"samples", samples}};
}

}  // namespace

void analyse(const std::string& path, std::FILE* to) {
    TraceReader trace(path);
    Symbols symbols;
    const About about = read_about(trace, symbols);
    const bool none = about.first > about.last;
    Account account(none ? 0 : about.first, none ? 0 : about.last, steps, about.nodes.size());
    Replay replay(trace);
    replay.for_each([&](std::uint32_t thread, const Event& event) { account.add(thread, event); });
    account.finish();
    const CallTree tree(about, account, symbols);
    const Json all = {
        {"process",
         {{"pid", about.process.pid}, {"parent", about.process.parent}, {"program", about.program},
          {"seconds", about.seconds_at(about.process.end_ticks)}, {"complete", about.process.complete != 0}}},
        {"trace",
         {{"bytes", trace.bytes()}, {"events", account.events}, {"lost_events", about.process.lost}, {"damaged_bytes", trace.damaged()},
          {"unreadable_chunks", about.unreadable + replay.unreadable()}, {"missing_objects", symbols.missing()}}},
        {"totals",
         {{"count", account.count}, {"bytes", account.bytes}, {"frees", account.frees}, {"unknown_frees", account.unknown_frees},
          {"peak", account.peak}, {"peak_count", account.peak_count}, {"peak_seconds", about.seconds_at(account.peak_time)},
          {"leaked", account.live}, {"leaked_count", account.live_count}, {"mapped", account.mapped}, {"mapped_bytes", account.mapped_bytes}}},
        {"tick", about.seconds_per_tick()},
        {"threads", threads_json(about, account)},
        {"timeline", timeline_json(about, account)},
        {"sizes", account.sizes},
        {"lifetimes", account.lifetimes},
        {"tree", tree.json()},
    };
    const std::string words = all.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (std::fwrite(words.data(), 1, words.size(), to) != words.size() || std::fputc('\n', to) == EOF || std::fflush(to) != 0)
        throw Error("cannot write the analysis");
}

}  // namespace assay::heap
