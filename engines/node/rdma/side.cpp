// Stamps, posts, times and verifies messages (see side.hpp).
#include "node/rdma/side.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.hpp"
#include "core/pattern.hpp"

namespace assay::rdma {
namespace {

constexpr std::size_t cache_line = 64;
// Messages verified before the timed part, per queue pair: enough to find a misplaced one, in
// memory that fits the usual limit on locked memory (8 MiB under systemd).
constexpr std::size_t verified_bytes = 1 << 20;
constexpr std::uint64_t verified_messages = 64;
constexpr int default_moderation = 100;          // perftest's
constexpr std::size_t moderated_size = 8192;     // above it perftest signals every message
constexpr Nanoseconds idle_limit = 100'000'000;  // without a completion, until the peer is checked
constexpr Nanoseconds alive_interval = 1'000'000'000;
// A write may complete at its sender shortly before its last byte is visible at the target.
constexpr Nanoseconds visibility_wait = 100'000'000;
constexpr double abort_wait = 0.5;  // seconds to wait for the other side's abort message

// The fix for a failed message, by the library's status (enum ibv_wc_status).
const char* fix_for(int status) {
    switch (status) {
        case 5:  // flushed: the queue pair had failed before
            return "the connection broke: see the messages of the other side and dmesg, and check "
                   "for packet loss";
        case 12:  // retries exceeded
            return "no acknowledgement: check that the two ports reach each other with this MTU "
                   "(ping -M do -s) and that the link is good";
        default: return "see the messages of the other side and dmesg";
    }
}

std::string bytes_text(std::size_t size) {
    return size % 1024 != 0        ? fmt::format("{} B", size)
           : size % (1 << 20) != 0 ? fmt::format("{} KiB", size >> 10)
                                   : fmt::format("{} MiB", size >> 20);
}

}  // namespace

const char* name(Op op) { return op == Op::write ? "write" : op == Op::read ? "read" : "send"; }

Op parse_op(const std::string& text) {
    for (const Op op : {Op::write, Op::read, Op::send})
        if (text == name(op)) return op;
    throw Error(fmt::format("unknown operation '{}'", text), "choose write, read or send");
}

bool Workload::sends() const { return std::ranges::find(ops, Op::send) != ops.end(); }

Json to_json(const Workload& w) {
    Json ops = Json::array();
    for (const Op op : w.ops) ops.push_back(name(op));
    return {{"ops", ops},
            {"sizes", w.sizes},
            {"iterations", w.iterations},
            {"depth", w.depth},
            {"qps", w.qps},
            {"moderation", w.moderation},
            {"repeats", w.repeats},
            {"bidirectional", w.bidirectional}};
}

namespace {

// The bounds of the parameters of the same names (rdma.hpp). With them no product of two overflows.
constexpr std::int64_t largest_size = 1 << 30, max_iterations = 100'000'000, max_qps = 1024,
                       max_posted = 32768, max_repeats = 10'000;
constexpr std::size_t max_sizes = 1024, max_ops = 16;

// Returns the value, which must be a whole number from `low` to `high`. Throws std::out_of_range.
std::int64_t parse_bounded(const Json& value, std::int64_t low, std::int64_t high) {
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(high))
        throw std::out_of_range("number");
    if (!value.is_number_integer()) throw std::out_of_range("number");
    const auto number = value.get<std::int64_t>();
    if (number < low || number > high) throw std::out_of_range("number");
    return number;
}

}  // namespace

Workload read_workload(const Json& j) {
    try {
        Workload w;
        w.ops.clear();
        w.sizes.clear();
        const Json &ops = j.at("ops"), &sizes = j.at("sizes");
        if (ops.is_array() && sizes.is_array() && ops.size() <= max_ops &&
            sizes.size() <= max_sizes) {
            for (const Json& op : ops) w.ops.push_back(parse_op(op));
            for (const Json& size : sizes)
                w.sizes.push_back(static_cast<std::size_t>(parse_bounded(size, 1, largest_size)));
        }
        w.iterations =
            static_cast<std::uint64_t>(parse_bounded(j.at("iterations"), 1, max_iterations));
        w.depth = static_cast<int>(parse_bounded(j.at("depth"), 1, max_posted));
        w.qps = static_cast<int>(parse_bounded(j.at("qps"), 1, max_qps));
        w.moderation = static_cast<int>(parse_bounded(j.at("moderation"), 0, max_posted));
        w.repeats = static_cast<int>(parse_bounded(j.at("repeats"), 1, max_repeats));
        w.bidirectional = j.at("bidirectional").get<bool>();
        if (!w.ops.empty() && !w.sizes.empty()) return w;
    } catch (const std::exception&) {
    }
    throw PeerError("the other side sent a workload that cannot be read",
                    "use the same version of Assay on both sides");
}

Layout::Layout(const Workload& w, std::size_t size)
    : stride((size + cache_line - 1) / cache_line * cache_line),
      half(memory(w) / 2),
      slots(std::clamp<std::uint64_t>(verified_bytes / stride, 1, verified_messages)) {}

std::size_t Layout::memory(const Workload& w) {
    std::size_t largest = 0;
    for (const std::size_t size : w.sizes) {
        const std::size_t stride = (size + cache_line - 1) / cache_line * cache_line;
        const std::size_t slots =
            std::clamp<std::size_t>(verified_bytes / stride, 1, verified_messages);
        largest = std::max(largest, static_cast<std::size_t>(w.qps) * slots * stride);
    }
    return 2 * largest;
}

std::size_t Layout::outgoing(int qp, std::uint64_t message) const {
    return (static_cast<std::size_t>(qp) * slots + message % slots) * stride;
}

int moderation(const Workload& w, std::size_t size) {
    const int interval = w.moderation != 0       ? w.moderation
                         : size > moderated_size ? 1
                                                 : default_moderation;
    return std::min(interval, w.depth);
}

Side::Side(Endpoint& endpoint, Connection& connection, const Workload& workload, bool client,
           double limit, Report report)
    : endpoint_(endpoint),
      connection_(connection),
      workload_(workload),
      client_(client),
      limit_(limit),
      report_(std::move(report)) {
    connection_.on_alive([this](double done) {
        if (report_) report_(done, label_);
    });
}

Result Side::measure(Op op, std::size_t size) {
    const Layout layout(workload_, size);
    label_ = fmt::format("{} of {}", name(op), bytes_text(size));
    Result result;
    const auto run_part = [&](std::uint64_t messages, bool spread) {
        const TimedPart part{op, size, layout, messages, spread, next_message_};
        next_message_ += messages;
        prepare(part);
        connection_.exchange({{"type", "prepared"}});
        const Timeline timeline = run(part);
        const double rate = timeline.average(), peak = timeline.peak();
        const Json peer_result =
            connection_.exchange({{"type", "done"}, {"rate", rate}, {"peak", peak}});
        verify(part, result.local);
        if (spread) return;
        result.rates.push_back(rate + peer_result.value("rate", 0.0));
        result.peaks.push_back(peak + peer_result.value("peak", 0.0));
    };
    run_part(layout.slots, true);
    for (int i = 0; i < workload_.repeats; ++i, ++parts_done_)
        run_part(workload_.iterations, false);
    Json own_result = {{"type", "checked"}, {"wrong", result.local.wrong}};
    if (const auto& w = result.local.first)
        own_result["first"] = {w->message, w->offset, w->expected, w->observed};
    const Json peer_result = connection_.exchange(own_result);
    result.remote.wrong = peer_result.value("wrong", std::uint64_t{0});
    if (peer_result.contains("first") && peer_result["first"].size() == 4)
        result.remote.first = {peer_result["first"][0], peer_result["first"][1],
                               peer_result["first"][2], peer_result["first"][3]};
    return result;
}

std::uint64_t Side::key(bool from_client, const TimedPart& part, int qp,
                        std::uint64_t message) const {
    return stamp_key((qp << 1) | (from_client ? 1 : 0), 0, part.first + message);
}

// Stamps the outgoing messages (one if all timed messages share a slot) and overwrites the incoming
// slots, so that a missing message is detected. Posts receives before the other side may send.
void Side::prepare(const TimedPart& part) {
    counts_.assign(static_cast<std::size_t>(workload_.qps), {});
    completed_ = arrived_ = 0;
    const std::uint64_t slots_used = part.spread ? part.messages : 1;
    for (int qp = 0; qp < workload_.qps; ++qp) {
        for (std::uint64_t m = 0; m < slots_used; ++m) {
            if (is_target(part.op)) {
                std::memset(endpoint_.memory() + part.incoming_offset(qp, m), 0xFF, part.size);
                poison(endpoint_.memory() + part.incoming_offset(qp, m), part.size,
                       key(!client_, part, qp, m));
            }
            stamp(endpoint_.memory() + part.outgoing_offset(qp, m), part.size,
                  key(client_, part, qp, m));
        }
        Counts& count = counts_[static_cast<std::size_t>(qp)];
        if (receives(part.op))
            for (; count.receives_posted < std::min<std::uint64_t>(part.messages, receive_depth);
                 ++count.receives_posted)
                endpoint_.post_receive(qp, part.incoming_offset(qp, count.receives_posted),
                                       part.size);
    }
}

Timeline Side::run(const TimedPart& part) {
    const std::uint64_t messages = part.messages * static_cast<std::uint64_t>(workload_.qps);
    const std::uint64_t to_complete = posts() ? messages : 0,
                        to_arrive = receives(part.op) ? messages : 0;
    const int signal_interval = moderation(workload_, part.size);
    Timeline timeline(to_complete);
    Nanoseconds last_completion = last_alive_ = now();
    while (completed_ < to_complete || arrived_ < to_arrive) {
        if (to_complete != 0) post_messages(part, timeline, signal_interval);
        if (poll_completions(part, timeline, signal_interval)) {
            last_completion = now();
        } else if (now() - last_completion > idle_limit) {
            wait(part, last_completion);
        }
        if (last_completion - last_alive_ > alive_interval) send_alive(part, last_completion);
    }
    return timeline;
}

// Posts messages until every queue is full.
void Side::post_messages(const TimedPart& part, Timeline& timeline, int signal_interval) {
    const auto depth = static_cast<std::uint64_t>(workload_.depth);
    for (int qp = 0; qp < workload_.qps; ++qp) {
        Counts& count = counts_[static_cast<std::size_t>(qp)];
        while (count.sent < part.messages && count.sent - count.done < depth) {
            const std::uint64_t m = count.sent++;
            const bool signalled = count.sent % static_cast<std::uint64_t>(signal_interval) == 0 ||
                                   count.sent == part.messages;
            // A read takes the data from the other side's outgoing slot.
            const bool reads = part.op == Op::read;
            timeline.posted(now());
            endpoint_.post(qp, part.op,
                           reads ? part.incoming_offset(qp, m) : part.outgoing_offset(qp, m),
                           reads ? part.outgoing_offset(qp, m) : part.incoming_offset(qp, m),
                           part.size, signalled);
        }
    }
}

// Processes completions. Returns whether there were any.
bool Side::poll_completions(const TimedPart& part, Timeline& timeline, int signal_interval) {
    std::array<Completion, 16> completions;  // as many as perftest
    const int n = endpoint_.poll(completions);
    for (int i = 0; i < n; ++i) {
        const Completion& completion = completions[static_cast<std::size_t>(i)];
        if (completion.status != 0) throw_failed(completion.status);
        Counts& count = counts_[static_cast<std::size_t>(completion.qp)];
        if (completion.received) {
            ++count.arrived;
            ++arrived_;
            if (count.receives_posted < part.messages)
                endpoint_.post_receive(completion.qp,
                                       part.incoming_offset(completion.qp, count.receives_posted++),
                                       part.size);
        } else {
            const auto finished = std::min<std::uint64_t>(
                static_cast<std::uint64_t>(signal_interval), part.messages - count.done);
            count.done += finished;
            completed_ += finished;
            timeline.completed(completed_, now());
        }
    }
    return n > 0;
}

void Side::wait(const TimedPart& part, Nanoseconds idle_since) {
    connection_.check();
    const Nanoseconds time = now();
    if (seconds(time - idle_since) > limit_)
        throw Error(
            fmt::format("{}: nothing was completed for {:g} s, after {} of {} messages", label_,
                        limit_, completed_ + arrived_,
                        part.messages * static_cast<std::uint64_t>(workload_.qps)),
            "check that the two ports reach each other, also with messages as long as their MTU");
    if (time - last_alive_ > alive_interval) send_alive(part, time);
}

// Reports progress and tells the other side that this one is working.
void Side::send_alive(const TimedPart& part, Nanoseconds time) {
    last_alive_ = time;
    const double share =
        static_cast<double>(completed_ + arrived_) /
        static_cast<double>(part.messages * static_cast<std::uint64_t>(workload_.qps));
    const auto all =
        static_cast<double>(workload_.ops.size() * workload_.sizes.size()) * workload_.repeats;
    const double done =
        std::min(1.0, (parts_done_ + (part.spread ? 0 : std::min(share, 1.0))) / all);
    connection_.send_alive(done);
    if (report_) report_(done, label_);
}

void Side::verify(const TimedPart& part, Verification& verification) {
    if (!is_target(part.op)) return;
    const std::uint64_t slots_used = part.spread ? part.messages : 1;
    const Nanoseconds deadline = now() + visibility_wait;
    for (int qp = 0; qp < workload_.qps; ++qp)
        for (std::uint64_t m = 0; m < slots_used; ++m) {
            const std::uint64_t expected = key(!client_, part, qp, m);
            const std::byte* data = endpoint_.memory() + part.incoming_offset(qp, m);
            auto wrong = first_wrong_byte(data, part.size, expected);
            while (wrong && now() < deadline) wrong = first_wrong_byte(data, part.size, expected);
            if (!wrong) continue;
            ++verification.wrong;
            if (verification.first) continue;
            const std::size_t offset = *wrong / 8 * 8;
            Corruption& first = verification.first.emplace(
                Corruption{part.first + m, *wrong, stamped_word(expected, offset), 0});
            std::memcpy(&first.observed, data + offset,
                        std::min<std::size_t>(8, part.size - offset));
        }
}

// Throws the other side's reason if it has sent one, else an Error with this side's status.
void Side::throw_failed(int status) {
    connection_.check(abort_wait);
    throw Error(fmt::format("{} to {} failed: {} (status {})", label_, connection_.peer(),
                            endpoint_.status_text(status), status),
                fix_for(status));
}

}  // namespace assay::rdma
