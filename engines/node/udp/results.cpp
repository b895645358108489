#include "node/udp/results.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "node/udp/udp.hpp"

namespace assay::node {
namespace {

// A sender that is further than this behind the wanted rate did not load the receiver as it was
// meant to be: all of what is offered on top by default, so that 9.018 Gbit/s wanted are 9.000 at
// least.
constexpr double reached = 0.998;
constexpr std::size_t most_samples =
    600;  // a minute of tenths of seconds; a longer run keeps the summary only

Summary single(double value) { return summarize({&value, 1}); }

std::string gbits(double bytes_a_second) { return fmt::format("{:.3g}", bytes_a_second * 8e-9); }

std::uint64_t expected_of(const Reception& r, std::size_t stream) {
    const std::uint64_t seen = r.arrivals.streams[stream].seen;
    return r.end && stream < r.end->sent.size()
               ? std::max(seen, std::min(r.end->sent[stream], r.hello.planned))
               : seen;
}

double span(const Reception& r) {
    const double seconds = assay::seconds(r.arrivals.last - r.arrivals.first);
    return seconds > 0 ? seconds : r.hello.seconds;
}

// Payload a second of `messages`, of which `head` were there when the clock started.
double bandwidth_of(const Reception& r, std::uint64_t messages, std::uint64_t head) {
    const std::uint64_t timed =
        r.arrivals.last > r.arrivals.first ? messages - std::min(messages, head) : messages;
    return static_cast<double>(timed * r.hello.size) / span(r);
}

void doubt(const Reception& r, Reckoning& k) {
    if (r.interrupted) {
        k.bandwidth_doubt = k.loss_doubt =
            fmt::format("interrupted after {:.3g} of {:g} s", k.seconds, r.hello.seconds);
    } else if (!r.end) {
        k.bandwidth_doubt = k.loss_doubt = fmt::format(
            "the sender fell silent after {:.3g} of {:g} s", k.seconds, r.hello.seconds);
    } else if (k.sent < reached * k.planned || r.end->rate < reached * r.hello.offered()) {
        k.bandwidth_doubt = r.end->rate < reached * r.hello.offered()
                                ? fmt::format("the sender could only send {} of {} Gbit/s",
                                              gbits(r.end->rate), gbits(r.hello.offered()))
                                : fmt::format("the sender stopped after {:.3g} % of its messages",
                                              100 * k.sent / k.planned);
        // Under a lower load nothing lost proves nothing; what was lost on the way or here, was.
        if (k.lost == k.losses.sender) k.loss_doubt = k.bandwidth_doubt;
    } else if (k.losses.sender > 0) {
        k.bandwidth_doubt =
            fmt::format("the sender's own queue dropped up to {} messages", r.end->dropped);
        if (k.lost == k.losses.sender) k.loss_doubt = k.bandwidth_doubt;
    }
}

// Records of one reception share their subject and what was asked for.
class Records {
public:
    Records(Sink& sink, const Subject& subject, const Reception& r)
        : sink_(sink),
          subject_(subject),
          common_({{"of", "all streams"},
                   {"streams", r.hello.streams},
                   {"size", r.hello.size},
                   {"offered", r.hello.offered()},
                   {"budget", r.hello.seconds},
                   {"sender", r.hello.host}}) {}

    void put(std::string_view metric, double value, const std::string& why_doubtful = "",
             const Json& more = Json::object()) {
        put(metric, single(value), {}, why_doubtful, more);
    }
    void put(std::string_view metric, const Summary& summary, std::span<const double> samples,
             const std::string& why_doubtful = "", const Json& more = Json::object()) {
        Json params = common_;
        params.update(more);
        if (why_doubtful.empty())
            sink_.measurement(udp_receive, metric, subject_, params, summary, samples);
        else sink_.doubtful(udp_receive, metric, subject_, params, summary, why_doubtful);
    }
    const Json& params() const { return common_; }

private:
    Sink& sink_;
    const Subject subject_;
    const Json common_;
};

void report_streams(Records& records, const Reception& r, const Reckoning& k) {
    if (r.hello.streams == 1) return;
    // Of the first batch, which started the clock, a stream's share is not known apart: the mean is
    // taken off.
    const std::uint64_t head = r.arrivals.first_batch / r.hello.streams;
    for (std::size_t s = 0; s < r.arrivals.streams.size(); ++s) {
        const StreamArrivals& stream = r.arrivals.streams[s];
        const std::uint64_t expected = expected_of(r, s);
        const Json of = {{"of", fmt::format("stream {}", s)}};
        records.put("bandwidth", bandwidth_of(r, stream.unique, head), k.bandwidth_doubt, of);
        const auto lost = static_cast<double>(expected - std::min(expected, stream.unique));
        records.put("loss", expected ? lost / static_cast<double>(expected) : 0, k.loss_doubt, of);
    }
}

// Whole intervals between the first and the last arrival: the ends are not full.
void report_intervals(Records& records, const Reception& r) {
    const Arrivals& a = r.arrivals;
    if (a.first == 0) return;
    std::vector<double> bandwidths;
    const auto begin =
        static_cast<std::size_t>((a.first - a.began + interval_ns - 1) / interval_ns);
    const auto end = static_cast<std::size_t>((a.last - a.began) / interval_ns);
    for (std::size_t i = begin; i < std::min(end, a.intervals.size()); ++i)
        bandwidths.push_back(static_cast<double>(a.intervals[i] * r.hello.size) /
                             seconds(interval_ns));
    if (bandwidths.empty()) return;
    const bool few = bandwidths.size() <= most_samples;
    records.put("interval_bandwidth", summarize(bandwidths),
                few ? std::span<const double>(bandwidths) : std::span<const double>());
}

}  // namespace

Reckoning reckon(const Reception& r) {
    Reckoning k;
    k.unique = r.arrivals.unique;
    k.planned = static_cast<double>(r.hello.planned) * r.hello.streams;
    for (const std::uint64_t sent : r.end ? r.end->sent : std::vector<std::uint64_t>())
        k.sent += static_cast<double>(sent);
    for (std::size_t s = 0; s < r.arrivals.streams.size(); ++s) {
        k.expected += expected_of(r, s);
        k.duplicates += r.arrivals.streams[s].duplicates;
        k.reordered += r.arrivals.streams[s].reordered;
    }
    k.lost = k.expected - std::min(k.expected, k.unique);
    k.seconds = seconds(r.arrivals.last - r.arrivals.first);
    k.bandwidth = bandwidth_of(r, k.unique, r.arrivals.first_batch);
    k.losses = attribute(k.lost, r.socket_drops * r.arrivals.largest_block,
                         r.end ? r.end->dropped : 0, r.grown);
    doubt(r, k);
    return k;
}

void report(Sink& sink, const Subject& subject, const Reception& r, const Reckoning& k) {
    Records records(sink, subject, r);
    Json details = r.details;
    details["gro"] = r.arrivals.largest_block;
    if (r.end) details["sent"] = r.end->rate;
    records.put("bandwidth", k.bandwidth, k.bandwidth_doubt, details);
    records.put("loss", k.share(k.lost), k.loss_doubt,
                {{"messages", k.expected}, {"lost", k.lost}});
    records.put("duplicates", k.share(k.duplicates));
    records.put("reordered", k.share(k.reordered));
    records.put("foreign", static_cast<double>(r.arrivals.foreign));
    if (details.value("verified", false))
        records.put("corrupted", static_cast<double>(r.arrivals.corrupted));
    for (const auto& [metric, count] : {std::pair{"lost_socket", k.losses.socket},
                                        {"lost_softnet", k.losses.softnet},
                                        {"lost_nic", k.losses.nic},
                                        {"lost_reassembly", k.losses.reassembly},
                                        {"lost_sender", k.losses.sender},
                                        {"lost_unseen", k.losses.unseen}})
        records.put(metric, static_cast<double>(count));
    if (r.arrivals.last > r.arrivals.first)
        records.put("longest_gap", seconds(r.arrivals.gap), "",
                    r.end ? Json{{"sender_late", r.end->pause}} : Json::object());
    std::vector<double> jitters;
    for (const StreamArrivals& stream : r.arrivals.streams) jitters.push_back(stream.jitter);
    if (r.arrivals.first != 0) records.put("jitter", summarize(jitters), {});
    report_intervals(records, r);
    report_streams(records, r, k);
    for (const DropCounters* counters : {&r.grown, &r.private_grown})
        for (const auto& [name, value] : *counters)
            records.put("device_counter", static_cast<double>(value), "", {{"counter", name}});
    if (const auto& c = r.arrivals.corruption)
        sink.corruption(udp_receive, subject, records.params(), c->message, c->offset, c->expected,
                        c->observed);
}

}  // namespace assay::node
