#include "profile/analyse/analyse.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <vector>

#include "core/error.hpp"
#include "profile/analyse/about.hpp"
#include "profile/analyse/account.hpp"
#include "profile/analyse/calls.hpp"
#include "profile/analyse/globals.hpp"
#include "profile/analyse/pages.hpp"
#include "profile/analyse/touch.hpp"
#include "profile/trace/replay.hpp"

namespace assay::heap {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t steps = 500;         // of the timeline
constexpr std::size_t listed_sizes = 100;  // the most frequent
constexpr std::size_t listed_lines = 200;  // that touch most pages
constexpr std::array<const char*, 16> kind_names = {
    "",        "malloc", "calloc", "memalign", "realloc_from",
    "realloc", "free",   "map",    "unmap",    "brk",
    "",        "",       "",       "",         "",
    ""};

// Stacks whose live bytes are followed together, as GroupPeaks numbers them: what hangs below each
// node of the tree; what a line, and a function, has asked for itself; and the same with all that
// was called from there.
class Groups {
public:
    explicit Groups(const CallTree& tree)
        : tree_(tree), nodes_(tree.nodes().size()), places_(tree.places().size()) {}
    std::size_t count() const { return nodes_ + 4 * places_; }
    std::vector<std::uint32_t> of(std::uint32_t node) const {
        std::set<std::uint32_t> found;
        for (std::uint32_t at = node; at != CallTree::none; at = tree_.nodes()[at].parent) {
            const std::uint32_t place = tree_.nodes()[at].place;
            found.insert({below(at), line_total(place), function_total(place)});
        }
        const std::uint32_t asker = tree_.asker(node);
        found.insert({line_own(asker), function_own(asker)});
        return {found.begin(), found.end()};
    }
    std::uint32_t below(std::uint32_t node) const { return node; }
    std::uint32_t line_own(std::uint32_t place) const { return number(0, place); }
    std::uint32_t line_total(std::uint32_t place) const { return number(1, place); }
    std::uint32_t function_own(std::uint32_t place) const {
        return number(2, tree_.places()[place].function);
    }
    std::uint32_t function_total(std::uint32_t place) const {
        return number(3, tree_.places()[place].function);
    }

private:
    std::uint32_t number(std::size_t table, std::uint32_t place) const {
        return static_cast<std::uint32_t>(nodes_ + table * places_ + place);
    }

    const CallTree& tree_;
    std::size_t nodes_, places_;
};

// The moment at which the process holds most memory that nothing was asked for, found while the
// events go by.
class WorstMoment {
public:
    explicit WorstMoment(const About& about) : about_(about), page_(about.process.page_bytes) {}
    void pass(std::uint64_t time, const Account& account) {
        for (; next_ < about_.samples.size() && about_.samples[next_].time <= time; ++next_) {
            const std::uint64_t resident =
                static_cast<std::uint64_t>(about_.samples[next_].resident_pages) * page_;
            const std::uint64_t gap = resident - std::min(resident, account.live);
            if (gap <= least_gap || static_cast<double>(gap) < enough * static_cast<double>(gap_))
                continue;
            gap_ = gap;
            found = look_at_pages(account.blocks(), page_);
            found.time = about_.samples[next_].time;
            found.resident = resident;
        }
    }

    Pages found;

private:
    static constexpr double enough = 1.25;               // times the last one: each look takes time
    static constexpr std::uint64_t least_gap = 1 << 20;  // bytes

    const About& about_;
    std::uint64_t page_, gap_ = 0;
    std::size_t next_ = 0;
};

Json spread_json(const std::array<std::uint32_t, powers>& counts) {
    const auto is_set = [](std::uint32_t n) { return n != 0; };
    const auto first = std::ranges::find_if(counts, is_set);
    const auto last = std::find_if(counts.rbegin(), counts.rend(), is_set).base();
    Json all = Json::array({first == counts.end() ? 0 : first - counts.begin()});
    for (auto at = first; at < last; ++at) all.push_back(*at);
    return all;
}

Json tree_json(const CallTree& tree, const Account& account, const Groups& groups,
               const GroupPeaks& peaks) {
    Json places = Json::array(), nodes = Json::array(), spreads = Json::object();
    for (std::uint32_t k = 0; k < tree.places().size(); ++k) {
        const CallTree::Line& one = tree.places()[k];
        const Place& p = *one.place;
        places.push_back({p.function, p.file, p.line, p.module, p.inlined, one.hands_on,
                          one.function, peaks.peak(groups.line_own(k)),
                          peaks.peak(groups.line_total(k)), peaks.peak(groups.function_own(k)),
                          peaks.peak(groups.function_total(k))});
    }
    for (std::uint32_t k = 0; k < tree.nodes().size(); ++k) {
        const CallTree::Node& n = tree.nodes()[k];
        const StackAccount& s = account.stacks[k];
        nodes.push_back({n.parent == CallTree::none ? -1 : static_cast<std::int64_t>(n.parent),
                         n.place,
                         s.count,
                         s.bytes,
                         s.peak,
                         peaks.peak(groups.below(k)),
                         s.at_peak,
                         s.live,
                         s.live_count,
                         s.temporary,
                         s.reallocated,
                         s.frees,
                         s.lifetime,
                         s.sampled_ticks,
                         s.sampled_calls,
                         s.sampled_free_ticks,
                         s.sampled_frees,
                         s.count > 0 ? s.least : 0,
                         s.most,
                         s.longest > 0 ? s.shortest : 0,
                         s.longest,
                         s.foreign_reallocations});
        // Put behind the others: whether it is among them would be looked up in all of them.
        if (account.spreads[k] != nullptr)
            spreads.get_ref<Json::object_t&>().emplace_back(
                std::to_string(k), Json{spread_json(account.spreads[k]->sizes),
                                        spread_json(account.spreads[k]->lifetimes)});
    }
    return {{"locations", places}, {"nodes", nodes}, {"histograms", spreads}};
}

Json threads_json(const About& about, const Account& account) {
    Json threads = Json::array();
    for (const auto& [serial, one] : std::map(account.threads.begin(), account.threads.end())) {
        Json calls = Json::object();
        for (std::size_t k = 1; k < kind_names.size(); ++k)
            if (*kind_names[k] != 0 && one.calls[k].count > 0)
                calls[kind_names[k]] = {
                    {"count", one.calls[k].count},
                    {"seconds", one.calls[k].ticks() * about.seconds_per_tick()}};
        const auto name = about.names.find(serial);
        threads.push_back({{"thread", serial},
                           {"name", name != about.names.end() ? name->second : ""},
                           {"bytes", one.bytes},
                           {"first", about.seconds_at(one.first)},
                           {"last", about.seconds_at(one.last)},
                           {"foreign_frees", one.foreign_frees},
                           {"calls", calls},
                           {"stack",
                            {{"deepest", one.deepest},
                             {"seconds", about.seconds_at(one.deepest_time)},
                             {"node", one.deepest_at},
                             {"resident", one.resident},
                             {"depth", one.depth}}}});
    }
    return threads;
}

Json timeline_json(const About& about, const Account& account) {
    Json samples = Json::array();
    const double page = about.process.page_bytes;
    for (const Sample& one : about.samples)
        samples.push_back({about.seconds_at(one.time),
                           static_cast<double>(one.virtual_pages) * page,
                           static_cast<double>(one.resident_pages) * page});
    return {{"start", about.seconds_at(account.timeline.first)},
            {"step", static_cast<double>(account.timeline.step) * about.seconds_per_tick()},
            {"live", account.timeline.live},
            {"count", account.timeline.count},
            {"bytes", account.timeline.bytes},
            {"samples", samples}};
}

// The most frequent sizes, exactly: bytes, blocks.
Json sizes_json(const Account& account) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
    for (std::uint64_t size = 0; size < account.exact.size(); ++size)
        if (account.exact[size] > 0) all.emplace_back(account.exact[size], size);
    std::ranges::sort(all, std::greater<>());
    Json sizes = Json::array();
    for (std::size_t k = 0; k < std::min(all.size(), listed_sizes); ++k)
        sizes.push_back({all[k].second, all[k].first});
    return sizes;
}

Json pages_json(const About& about, const Pages& one) {
    if (one.pages == 0) return nullptr;
    Json pins = Json::array();
    for (const Pages::Pin& pin : one.pins) pins.push_back({pin.stack, pin.bytes, pin.blocks});
    return {{"seconds", about.seconds_at(one.time)},
            {"resident", one.resident},
            {"live", one.live},
            {"page_bytes", about.process.page_bytes},
            {"pages", one.pages},
            {"filled", one.filled},
            {"pins", pins}};
}

// Who has paid for pages, and for whose blocks: lines as [function, file, line, pages], stacks as
// [node, pages, pages with huge ones].
Json touches_json(const About& about, const TouchAccount& touch, const CallTree& tree,
                  Symbols& symbols) {
    if (!about.watched_touches) return nullptr;
    std::map<std::tuple<std::string, std::string, int>, std::uint64_t> lines;
    const auto add = [&](const Place& place, std::uint64_t count) {
        lines[{place.function, place.file, place.line}] += count;
    };
    for (const auto& [stand, count] : touch.stands)
        add(toucher(about.stands[stand], symbols), count);
    for (const auto& [node, count] : touch.askers)
        add(*tree.places()[tree.asker(node)].place, count);
    std::vector<std::pair<std::uint64_t, std::tuple<std::string, std::string, int>>> ranked;
    for (const auto& [line, count] : lines) ranked.emplace_back(count, line);
    std::ranges::sort(ranked, std::greater<>());
    Json by_line = Json::array(), by_stack = Json::array(), by_thread = Json::array();
    for (std::size_t k = 0; k < std::min(ranked.size(), listed_lines); ++k) {
        const auto& [function, file, line] = ranked[k].second;
        by_line.push_back({function, file, line, ranked[k].first});
    }
    for (const auto& [node, count] : std::map(touch.stacks.begin(), touch.stacks.end()))
        by_stack.push_back({node, count.touches, count.with_huge});
    for (const auto& [thread, count] : std::map(touch.threads.begin(), touch.threads.end()))
        by_thread.push_back({thread, count});
    return {{"outside", touch.outside},
            {"lines", by_line},
            {"stacks", by_stack},
            {"threads", by_thread}};
}

Json globals_json(const About& about, const Globals& globals) {
    const auto known = [](const std::optional<std::uint64_t>& bytes) {
        return bytes ? Json(*bytes) : Json(nullptr);
    };
    Json objects = Json::array(), variables = Json::array();
    for (const ObjectData& o : globals.objects)
        objects.push_back({o.path, o.data, o.zeroed, o.per_thread, o.variables, known(o.resident)});
    for (const Variable& v : globals.variables)
        variables.push_back(
            {v.name, v.object, v.bytes, v.per_thread, v.file, v.line, known(v.resident)});
    return {{"seconds",
             about.mappings_time > 0 ? Json(about.seconds_at(about.mappings_time)) : Json(nullptr)},
            {"objects", objects},
            {"variables", variables}};
}

}  // namespace

// What one pass over the events needs; in the order in which it is made.
struct Analysis::Parts {
    Parts(const About& about_of, Symbols& symbols_of)
        : about(about_of),
          symbols(symbols_of),
          tree(about.nodes, about.python, symbols),
          groups(tree),
          peaks(groups.count(), [this](std::uint32_t node) { return groups.of(node); }),
          account(about.first > about.last ? 0 : about.first,
                  about.first > about.last ? 0 : about.last, steps, tree.nodes().size(), &peaks,
                  about.process.sample),
          worst(about),
          touch(about) {}

    const About& about;
    Symbols& symbols;
    CallTree tree;
    Groups groups;
    GroupPeaks peaks;
    Account account;
    WorstMoment worst;
    TouchAccount touch;
};

Analysis::Analysis(const About& about, Symbols& symbols)
    : parts_(std::make_unique<Parts>(about, symbols)) {}
Analysis::~Analysis() = default;

void Analysis::add(std::uint32_t thread, Event event) {
    event.stack = parts_->tree.node_of(event.stack);
    // Where blocks from before are not known, pages may be in use that look empty.
    if (!parts_->about.ran) parts_->worst.pass(event.time, parts_->account);
    parts_->touch.pass(event.time, parts_->account.blocks());
    parts_->touch.note(thread, event);
    parts_->account.add(thread, event);
}

void Analysis::tell(const Reading& reading, std::FILE* to) {
    auto& [about, symbols, tree, groups, peaks, account, worst, touch] = *parts_;
    touch.pass(~std::uint64_t{0}, account.blocks());
    account.finish();
    const Json all = {
        {"process",
         {{"pid", about.process.pid},
          {"parent", about.process.parent},
          {"program", about.program},
          {"rank", about.rank},
          {"seconds", about.seconds_at(about.process.end_ticks)},
          {"complete", about.process.complete != 0},
          {"detached", about.process.complete == static_cast<std::uint32_t>(Ending::left)},
          {"attached_after", about.ran ? Json(*about.ran) : Json(nullptr)},
          {"at_least", about.process.at_least},
          {"sample", about.process.sample}}},
        {"trace",
         {{"imported_from", reading.source},
          {"bytes", reading.bytes},
          {"events", account.events},
          {"lost_events", about.process.lost},
          {"damaged_bytes", reading.damaged},
          {"unreadable_chunks", about.unreadable + reading.unreadable},
          {"missing_objects", symbols.missing()},
          {"unsupported_python", about.python.unread}}},
        {"totals",
         {{"count", account.count},
          {"bytes", account.bytes},
          {"frees", account.frees},
          {"unknown_frees", account.unknown_frees},
          {"peak", account.peak},
          {"peak_count", account.peak_count},
          {"peak_seconds", account.peak > 0 ? about.seconds_at(account.peak_time) : 0.0},
          {"leaked", account.live},
          {"leaked_count", account.live_count},
          {"mapped", account.mapped},
          {"mapped_bytes", account.mapped_bytes}}},
        {"tick", about.seconds_per_tick()},
        {"threads", threads_json(about, account)},
        {"timeline", timeline_json(about, account)},
        {"sizes", account.sizes},
        {"frequent", sizes_json(account)},
        {"lifetimes", account.lifetimes},
        {"touches", touches_json(about, touch, tree, symbols)},
        {"fragmentation", pages_json(about, worst.found)},
        {"globals",
         globals_json(about, find_globals(symbols, about.mappings, about.process.page_bytes))},
        {"tree", tree_json(tree, account, groups, peaks)},
    };
    const std::string words = all.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (std::fwrite(words.data(), 1, words.size(), to) != words.size() ||
        std::fputc('\n', to) == EOF || std::fflush(to) != 0)
        throw Error(std::string("cannot write the analysis: ") + std::strerror(errno),
                    "is the disk full?");
}

void analyse(const std::string& path, std::uint64_t bytes, std::FILE* to) {
    TraceReader trace(path, bytes);
    Symbols symbols;
    const About about = read_about(trace, symbols);
    Analysis analysis(about, symbols);
    Replay replay(trace);
    replay.for_each([&](std::uint32_t thread, const Event& event) { analysis.add(thread, event); });
    analysis.tell({.source = "",
                   .bytes = trace.bytes(),
                   .damaged = trace.damaged(),
                   .unreadable = replay.unreadable()},
                  to);
}

}  // namespace assay::heap
