#include "node/rdma/side.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.hpp"
#include "core/pattern.hpp"

namespace assay::rdma {
namespace {

constexpr std::size_t line = 64;
// Verified apart, for each queue pair: enough messages to find one that goes astray, in memory that
// an ordinary limit of locked memory (8 MiB under systemd) allows.
constexpr std::size_t verified_bytes = 1 << 20;
constexpr std::uint64_t verified_messages = 64;
constexpr int default_moderation = 100;       // perftest's
constexpr std::size_t moderated_size = 8192;  // above it perftest has every message complete
constexpr Nanoseconds patience =
    100'000'000;  // without a completion, until the other side is asked for
constexpr Nanoseconds beat_every = 1'000'000'000;
// A write may be complete at its sender a moment before its last byte can be read at its target.
constexpr Nanoseconds settling = 100'000'000;
constexpr double last_words = 0.5;  // seconds for the other side to say why a message failed

// What mends a message's failure, by the library's status (enum ibv_wc_status).
const char* remedy(int status) {
    switch (status) {
        case 5:  // flushed: the queue pair had failed before
            return "the connection broke: the other side's words and the kernel's (dmesg) say why; "
                   "are packets lost on the way?";
        case 12:  // retries exceeded
            return "nothing acknowledges it: do the two ports reach each other with this MTU (ping "
                   "-M do -s), and is the link good?";
        default: return "see the words of the other side and of the kernel (dmesg)";
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
    throw Error(fmt::format("no operation '{}'", text), "there are write, read and send");
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

Workload read_workload(const Json& j) {
    try {
        Workload w;
        w.ops.clear();
        for (const Json& op : j.at("ops")) w.ops.push_back(parse_op(op));
        w.sizes = j.at("sizes").get<std::vector<std::size_t>>();
        w.iterations = j.at("iterations");
        w.depth = j.at("depth");
        w.qps = j.at("qps");
        w.moderation = j.at("moderation");
        w.repeats = j.at("repeats");
        w.bidirectional = j.at("bidirectional");
        const bool sane = !w.ops.empty() && !w.sizes.empty() &&
                          std::ranges::find(w.sizes, std::size_t{0}) == w.sizes.end() &&
                          w.iterations > 0 && w.depth > 0 && w.qps > 0 && w.moderation >= 0 &&
                          w.repeats > 0;
        if (sane) return w;
    } catch (const std::exception&) {
    }
    throw PeerError("the other side asks for something that cannot be read",
                    "use the same version of Assay on both sides");
}

Layout::Layout(const Workload& w, std::size_t size)
    : stride((size + line - 1) / line * line),
      half(memory(w) / 2),
      slots(std::clamp<std::uint64_t>(verified_bytes / stride, 1, verified_messages)) {}

std::size_t Layout::memory(const Workload& w) {
    std::size_t most = 0;
    for (const std::size_t size : w.sizes) {
        const std::size_t stride = (size + line - 1) / line * line;
        const std::size_t slots =
            std::clamp<std::size_t>(verified_bytes / stride, 1, verified_messages);
        most = std::max(most, static_cast<std::size_t>(w.qps) * slots * stride);
    }
    return 2 * most;
}

std::size_t Layout::outgoing(int qp, std::uint64_t message) const {
    return (static_cast<std::size_t>(qp) * slots + message % slots) * stride;
}

int moderation(const Workload& w, std::size_t size) {
    const int wanted = w.moderation != 0       ? w.moderation
                       : size > moderated_size ? 1
                                               : default_moderation;
    return std::min(wanted, w.depth);
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
        if (report_) report_(done, current_);
    });
}

Result Side::measure(Op op, std::size_t size) {
    const Layout layout(workload_, size);
    current_ = fmt::format("{} of {}", name(op), bytes_text(size));
    Result result;
    const auto once = [&](std::uint64_t messages, bool spread) {
        const Part part{op, size, layout, messages, spread, next_message_};
        next_message_ += messages;
        prepare(part);
        connection_.exchange({{"type", "prepared"}});
        const Timeline timeline = run(part);
        const double rate = timeline.average(), peak = timeline.peak();
        const Json theirs =
            connection_.exchange({{"type", "done"}, {"rate", rate}, {"peak", peak}});
        verify(part, result.here);
        if (spread) return;
        result.rates.push_back(rate + theirs.value("rate", 0.0));
        result.peaks.push_back(peak + theirs.value("peak", 0.0));
    };
    once(layout.slots, true);
    for (int i = 0; i < workload_.repeats; ++i, ++parts_done_) once(workload_.iterations, false);
    Json mine = {{"type", "checked"}, {"wrong", result.here.wrong}};
    if (const auto& w = result.here.first)
        mine["first"] = {w->message, w->offset, w->expected, w->observed};
    const Json theirs = connection_.exchange(mine);
    result.there.wrong = theirs.value("wrong", std::uint64_t{0});
    if (theirs.contains("first") && theirs["first"].size() == 4)
        result.there.first = {theirs["first"][0], theirs["first"][1], theirs["first"][2],
                              theirs["first"][3]};
    return result;
}

std::uint64_t Side::key(bool from_client, const Part& part, int qp, std::uint64_t message) const {
    return stamp_key((qp << 1) | (from_client ? 1 : 0), 0, part.first + message);
}

// What is sent is stamped, of the timed messages the one that all of them are; where they arrive,
// all is made different, so that what does not arrive is seen. Receives are posted before the other
// side may send.
void Side::prepare(const Part& part) {
    counts_.assign(static_cast<std::size_t>(workload_.qps), {});
    completed_ = arrived_ = 0;
    const std::uint64_t places = part.spread ? part.messages : 1;
    for (int qp = 0; qp < workload_.qps; ++qp) {
        for (std::uint64_t m = 0; m < places; ++m) {
            if (filled(part.op)) {
                std::memset(endpoint_.memory() + part.in(qp, m), 0xFF, part.size);
                poison(endpoint_.memory() + part.in(qp, m), part.size, key(!client_, part, qp, m));
            }
            stamp(endpoint_.memory() + part.out(qp, m), part.size, key(client_, part, qp, m));
        }
        Counts& count = counts_[static_cast<std::size_t>(qp)];
        if (takes_in(part.op))
            for (; count.expecting < std::min<std::uint64_t>(part.messages, receive_depth);
                 ++count.expecting)
                endpoint_.post_receive(qp, part.in(qp, count.expecting), part.size);
    }
}

Timeline Side::run(const Part& part) {
    const std::uint64_t messages = part.messages * static_cast<std::uint64_t>(workload_.qps);
    const std::uint64_t to_complete = posts() ? messages : 0,
                        to_arrive = takes_in(part.op) ? messages : 0;
    const int every = moderation(workload_, part.size);
    Timeline timeline(to_complete);
    Nanoseconds last = last_beat_ = now();
    while (completed_ < to_complete || arrived_ < to_arrive) {
        if (to_complete != 0) fill(part, timeline, every);
        if (reap(part, timeline, every)) {
            last = now();
        } else if (now() - last > patience) {
            wait(part, last);
        }
        if (last - last_beat_ > beat_every) beat(part, last);
    }
    return timeline;
}

// Each queue of each pair as deep as it may be.
void Side::fill(const Part& part, Timeline& timeline, int every) {
    const auto depth = static_cast<std::uint64_t>(workload_.depth);
    for (int qp = 0; qp < workload_.qps; ++qp) {
        Counts& count = counts_[static_cast<std::size_t>(qp)];
        while (count.sent < part.messages && count.sent - count.done < depth) {
            const std::uint64_t m = count.sent++;
            const bool signalled =
                count.sent % static_cast<std::uint64_t>(every) == 0 || count.sent == part.messages;
            // A read takes from where the other side sends from.
            const bool reads = part.op == Op::read;
            timeline.posted(now());
            endpoint_.post(qp, part.op, reads ? part.in(qp, m) : part.out(qp, m),
                           reads ? part.out(qp, m) : part.in(qp, m), part.size, signalled);
        }
    }
}

// Whether anything was complete.
bool Side::reap(const Part& part, Timeline& timeline, int every) {
    std::array<Completion, 16> found;  // perftest polls for as many
    const int n = endpoint_.poll(found);
    for (int i = 0; i < n; ++i) {
        const Completion& one = found[static_cast<std::size_t>(i)];
        if (one.status != 0) failed(one.status);
        Counts& count = counts_[static_cast<std::size_t>(one.qp)];
        if (one.received) {
            ++count.arrived;
            ++arrived_;
            if (count.expecting < part.messages)
                endpoint_.post_receive(one.qp, part.in(one.qp, count.expecting++), part.size);
        } else {
            const auto newly = std::min<std::uint64_t>(static_cast<std::uint64_t>(every),
                                                       part.messages - count.done);
            count.done += newly;
            completed_ += newly;
            timeline.completed(completed_, now());
        }
    }
    return n > 0;
}

void Side::wait(const Part& part, Nanoseconds idle_since) {
    connection_.check();
    const Nanoseconds time = now();
    if (seconds(time - idle_since) > limit_)
        throw Error(fmt::format("{}: nothing was completed for {:g} s, {} of {} messages were",
                                current_, limit_, completed_ + arrived_,
                                part.messages * static_cast<std::uint64_t>(workload_.qps)),
                    "do the two ports reach each other, also with messages as long as their MTU?");
    if (time - last_beat_ > beat_every) beat(part, time);
}

// Both sides then know that the work goes on: a limit is on silence, not on work.
void Side::beat(const Part& part, Nanoseconds time) {
    last_beat_ = time;
    const double share =
        static_cast<double>(completed_ + arrived_) /
        static_cast<double>(part.messages * static_cast<std::uint64_t>(workload_.qps));
    const auto all =
        static_cast<double>(workload_.ops.size() * workload_.sizes.size()) * workload_.repeats;
    const double done =
        std::min(1.0, (parts_done_ + (part.spread ? 0 : std::min(share, 1.0))) / all);
    connection_.alive(done);
    if (report_) report_(done, current_);
}

void Side::verify(const Part& part, Checked& checked) {
    if (!filled(part.op)) return;
    const std::uint64_t places = part.spread ? part.messages : 1;
    const Nanoseconds deadline = now() + settling;
    for (int qp = 0; qp < workload_.qps; ++qp)
        for (std::uint64_t m = 0; m < places; ++m) {
            const std::uint64_t expected = key(!client_, part, qp, m);
            const std::byte* data = endpoint_.memory() + part.in(qp, m);
            auto wrong = first_wrong_byte(data, part.size, expected);
            while (wrong && now() < deadline) wrong = first_wrong_byte(data, part.size, expected);
            if (!wrong) continue;
            ++checked.wrong;
            if (checked.first) continue;
            const std::size_t offset = *wrong / 8 * 8;
            Wrong& first = checked.first.emplace(
                Wrong{part.first + m, *wrong, stamped_word(expected, offset), 0});
            std::memcpy(&first.observed, data + offset,
                        std::min<std::size_t>(8, part.size - offset));
        }
}

// The other side may know the reason: it has ended, or has failed itself.
void Side::failed(int status) {
    connection_.check(last_words);
    throw Error(fmt::format("{} to {} failed: {} (status {})", current_, connection_.peer(),
                            endpoint_.status_text(status), status),
                remedy(status));
}

}  // namespace assay::rdma
