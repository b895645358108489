// Evaluates a reception and writes its records.
#include "node/udp/results.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "node/udp/udp.hpp"

namespace assay::node {
namespace {

// Least share of the requested rate, and of the planned messages, that the sender has to send, from
// 0 to 1. With less it did not load the receiver as intended. It is the margin that the default
// rate adds: 9.018 Gbit/s requested give at least 9.000.
constexpr double min_sent_share = 0.998;
constexpr std::size_t max_samples = 600;  // one minute; of a longer run only the summary is kept

Summary single(double value) { return summarize({&value, 1}); }

std::string gbits(double bytes_a_second) { return fmt::format("{:.3g}", bytes_a_second * 8e-9); }

// Messages that the sender has sent on a stream, as it reports; at least up to the last arrival.
std::uint64_t expected_messages(const Reception& r, std::size_t stream) {
    const std::uint64_t next = r.arrivals.streams[stream].next;
    return r.end && stream < r.end->sent.size()
               ? std::max(next, std::min(r.end->sent[stream], r.hello.messages_per_stream))
               : next;
}

double duration(const Reception& r) {
    const double seconds = assay::seconds(r.arrivals.last - r.arrivals.first);
    return seconds > 0 ? seconds : r.hello.seconds;
}

// Payload per second of `messages`, of which `first_batch` had arrived when the clock started.
double bandwidth(const Reception& r, std::uint64_t messages, std::uint64_t first_batch) {
    const std::uint64_t timed =
        r.arrivals.last > r.arrivals.first ? messages - std::min(messages, first_batch) : messages;
    return static_cast<double>(timed * r.hello.size) / duration(r);
}

// Sets the reasons why bandwidth or loss do not show the receiver's limit.
void set_doubts(const Reception& r, ReceptionResult& result) {
    if (r.interrupted) {
        result.bandwidth_doubt = result.loss_doubt =
            fmt::format("interrupted after {:.3g} of {:g} s", result.seconds, r.hello.seconds);
    } else if (!r.end) {
        result.bandwidth_doubt = result.loss_doubt = fmt::format(
            "the sender fell silent after {:.3g} of {:g} s", result.seconds, r.hello.seconds);
    } else if (result.sent < min_sent_share * result.planned ||
               r.end->rate < min_sent_share * r.hello.requested_rate()) {
        result.bandwidth_doubt =
            r.end->rate < min_sent_share * r.hello.requested_rate()
                ? fmt::format("the sender could only send {} of {} Gbit/s", gbits(r.end->rate),
                              gbits(r.hello.requested_rate()))
                : fmt::format("the sender stopped after {:.3g} % of its messages",
                              100 * result.sent / result.planned);
        // The absence of loss under a lower load proves nothing. A loss in the network or at the
        // receiver counts.
        if (result.lost == result.losses.sender) result.loss_doubt = result.bandwidth_doubt;
    } else if (result.losses.sender > 0) {
        result.bandwidth_doubt =
            fmt::format("the sender's own queue dropped up to {} messages", r.end->dropped);
        if (result.lost == result.losses.sender) result.loss_doubt = result.bandwidth_doubt;
    }
}

// Writes the records of one reception, which share their subject and parameters.
class Records {
public:
    Records(Sink& sink, const Subject& subject, const Reception& r)
        : sink_(sink),
          subject_(subject),
          common_({{"stream", "all"},
                   {"streams", r.hello.streams},
                   {"size", r.hello.size},
                   {"offered", r.hello.requested_rate()},
                   {"budget", r.hello.seconds},
                   {"sender", r.hello.host}}) {}

    void add(std::string_view metric, double value, const std::string& doubt = "",
             const Json& extra = Json::object()) {
        add(metric, single(value), {}, doubt, extra);
    }
    void add(std::string_view metric, const Summary& summary, std::span<const double> samples,
             const std::string& doubt = "", const Json& extra = Json::object()) {
        Json params = common_;
        params.update(extra);
        if (doubt.empty())
            sink_.measurement(udp_receive, metric, subject_, params, summary, samples);
        else sink_.doubtful(udp_receive, metric, subject_, params, summary, doubt);
    }
    const Json& params() const { return common_; }

private:
    Sink& sink_;
    const Subject subject_;
    const Json common_;
};

void report_streams(Records& records, const Reception& r, const ReceptionResult& result) {
    if (r.hello.streams == 1) return;
    // A stream's share of the first batch, which started the clock, is not known: use the mean.
    const std::uint64_t first_batch = r.arrivals.first_batch / r.hello.streams;
    for (std::size_t s = 0; s < r.arrivals.streams.size(); ++s) {
        const StreamArrivals& stream = r.arrivals.streams[s];
        const std::uint64_t expected = expected_messages(r, s);
        const Json stream_params = {{"stream", std::to_string(s)}};
        records.add("bandwidth", bandwidth(r, stream.unique, first_batch), result.bandwidth_doubt,
                    stream_params);
        const auto lost = static_cast<double>(expected - std::min(expected, stream.unique));
        records.add("loss", expected ? lost / static_cast<double>(expected) : 0, result.loss_doubt,
                    stream_params);
    }
}

// Records the whole intervals between the first and the last arrival; the outer ones are partial.
void report_intervals(Records& records, const Reception& r) {
    const Arrivals& a = r.arrivals;
    if (a.first == 0) return;
    std::vector<double> bandwidths;
    const auto begin =
        static_cast<std::size_t>((a.first - a.start + bandwidth_interval - 1) / bandwidth_interval);
    const auto end = static_cast<std::size_t>((a.last - a.start) / bandwidth_interval);
    for (std::size_t i = begin; i < std::min(end, a.intervals.size()); ++i)
        bandwidths.push_back(static_cast<double>(a.intervals[i] * r.hello.size) /
                             seconds(bandwidth_interval));
    if (bandwidths.empty()) return;
    const bool short_run = bandwidths.size() <= max_samples;
    records.add("interval_bandwidth", summarize(bandwidths),
                short_run ? std::span<const double>(bandwidths) : std::span<const double>());
}

}  // namespace

ReceptionResult evaluate(const Reception& r) {
    ReceptionResult result;
    result.unique = r.arrivals.unique;
    result.planned = static_cast<double>(r.hello.messages_per_stream) * r.hello.streams;
    for (const std::uint64_t sent : r.end ? r.end->sent : std::vector<std::uint64_t>())
        result.sent += static_cast<double>(sent);
    for (std::size_t s = 0; s < r.arrivals.streams.size(); ++s) {
        result.expected += expected_messages(r, s);
        result.duplicates += r.arrivals.streams[s].duplicates;
        result.reordered += r.arrivals.streams[s].reordered;
    }
    result.lost = result.expected - std::min(result.expected, result.unique);
    result.seconds = seconds(r.arrivals.last - r.arrivals.first);
    result.bandwidth = bandwidth(r, result.unique, r.arrivals.first_batch);
    result.losses = attribute(result.lost, r.socket_drops * r.arrivals.largest_block,
                              r.end ? r.end->dropped : 0, r.growth, r.fragments);
    set_doubts(r, result);
    return result;
}

void report(Sink& sink, const Subject& subject, const Reception& r, const ReceptionResult& result) {
    Records records(sink, subject, r);
    Json details = r.details;
    details["gro"] = r.arrivals.largest_block;
    if (r.end) details["sent"] = r.end->rate;
    records.add("bandwidth", result.bandwidth, result.bandwidth_doubt, details);
    records.add("loss", result.share(result.lost), result.loss_doubt,
                {{"messages", result.expected}, {"lost", result.lost}, {"fragments", r.fragments}});
    records.add("duplicates", result.share(result.duplicates));
    records.add("reordered", result.share(result.reordered));
    records.add("foreign", static_cast<double>(r.arrivals.foreign));
    if (details.value("verified", false))
        records.add("corrupted", static_cast<double>(r.arrivals.corrupted));
    for (const auto& [metric, count] : {std::pair{"lost_socket", result.losses.socket},
                                        {"lost_softnet", result.losses.softnet},
                                        {"lost_nic", result.losses.nic},
                                        {"lost_reassembly", result.losses.reassembly},
                                        {"lost_sender", result.losses.sender},
                                        {"lost_unattributed", result.losses.unattributed}})
        records.add(metric, static_cast<double>(count));
    if (r.arrivals.last > r.arrivals.first)
        records.add("longest_gap", seconds(r.arrivals.gap), "",
                    r.end ? Json{{"sender_late", r.end->max_lateness}} : Json::object());
    std::vector<double> jitters;
    jitters.reserve(r.arrivals.streams.size());
    for (const StreamArrivals& stream : r.arrivals.streams) jitters.push_back(stream.jitter);
    if (r.arrivals.first != 0) records.add("jitter", summarize(jitters), {});
    report_intervals(records, r);
    report_streams(records, r, result);
    for (const Counters* counters : {&r.growth, &r.private_growth})
        for (const auto& [name, value] : *counters)
            if (!is_harmless(name))
                records.add("device_counter", static_cast<double>(value), "", {{"counter", name}});
    if (const auto& c = r.arrivals.corruption)
        sink.corruption(udp_receive, subject, records.params(), c->message, c->offset, c->expected,
                        c->observed);
}

}  // namespace assay::node
