// Encodes, decodes, signs and verifies the control messages; generates the payload.
#include "node/udp/wire.hpp"

#include <nlohmann/json.hpp>

#include "session/handshake.hpp"

namespace assay::node {
namespace {

using Json = nlohmann::json;

constexpr std::string_view prefix = "assay-udp/2 ";

std::string encode_message(Json fields, const char* kind, std::uint64_t run_number) {
    fields["type"] = kind;
    fields["run"] = run_number;
    // A host name may be invalid UTF-8.
    return std::string(prefix) + fields.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The value, which must be a whole number of at most `max`. Throws std::out_of_range for other
// numbers, such as 1e300.
std::uint64_t whole_number(const Json& value, std::uint64_t max = ~std::uint64_t{0}) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > max)
        throw std::out_of_range("number");
    return value.get<std::uint64_t>();
}

std::uint32_t whole_number_32(const Json& value) {
    return static_cast<std::uint32_t>(whole_number(value, ~std::uint32_t{0}));
}

std::vector<std::uint64_t> whole_numbers(const Json& values) {
    std::vector<std::uint64_t> numbers;
    for (const Json& value : values) numbers.push_back(whole_number(value));
    return numbers;
}

// In the JSON "planned" is messages_per_stream, "run" is run_number and "pause" is max_lateness.
ControlMessage read_fields(const Json& j) {
    const auto type = j.at("type").get<std::string>();
    const std::uint64_t run_number = whole_number(j.at("run"));
    ControlMessage message;
    if (type == "hello")
        message.hello = Hello{run_number,
                              whole_number(j.at("size")),
                              whole_number(j.at("planned")),
                              whole_number_32(j.at("streams")),
                              j.at("rate"),
                              j.at("seconds"),
                              j.at("host")};
    else if (type == "welcome")
        message.welcome = Welcome{run_number, whole_number_32(j.at("sockets")), j.at("host")};
    else if (type == "refusal") message.refusal = Refusal{run_number, j.at("reason"), j.at("fix")};
    else if (type == "end")
        message.end = End{run_number,    whole_numbers(j.at("sent")),
                          j.at("rate"),  whole_number(j.at("dropped")),
                          j.at("pause"), j.at("gso")};
    else if (type == "report")
        message.report = Report{run_number, whole_number(j.at("received")),
                                whole_number(j.at("lost")), j.at("bandwidth")};
    else throw std::invalid_argument(type);
    return message;
}

// Whether the numbers of a received message are within the bounds of the parameters.
bool is_within_bounds(const ControlMessage& message) {
    if (message.hello) {
        const Hello& h = *message.hello;
        return h.streams >= 1 && h.streams <= 128 && h.size >= DataHeader::bytes &&
               h.size <= 65535 && h.messages_per_stream >= 1 && h.rate > 0 && h.rate <= 1e13 &&
               h.seconds > 0 && h.seconds <= 1e6;
    }
    if (message.welcome) return message.welcome->sockets >= 1 && message.welcome->sockets <= 128;
    return true;
}

}  // namespace

std::vector<std::byte> payload_of(std::uint64_t run_number, std::size_t size) {
    std::vector<std::byte> payload(size);
    std::uint64_t state = run_number;
    for (std::byte& byte : payload) {
        state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX
        byte = static_cast<std::byte>(state >> 56);
    }
    return payload;
}

std::string encode(const Hello& h) {
    return encode_message({{"size", h.size},
                           {"planned", h.messages_per_stream},
                           {"streams", h.streams},
                           {"rate", h.rate},
                           {"seconds", h.seconds},
                           {"host", h.host}},
                          "hello", h.run_number);
}
std::string encode(const Welcome& w) {
    return encode_message({{"sockets", w.sockets}, {"host", w.host}}, "welcome", w.run_number);
}
std::string encode(const Refusal& r) {
    return encode_message({{"reason", r.reason}, {"fix", r.fix}}, "refusal", r.run_number);
}
std::string encode(const End& e) {
    return encode_message({{"sent", e.sent},
                           {"rate", e.rate},
                           {"dropped", e.dropped},
                           {"pause", e.max_lateness},
                           {"gso", e.gso}},
                          "end", e.run_number);
}
std::string encode(const Report& r) {
    return encode_message({{"received", r.received}, {"lost", r.lost}, {"bandwidth", r.bandwidth}},
                          "report", r.run_number);
}

std::string Seal::sign(std::string text) const {
    if (!token_) return text;
    const session::Token signature{session::sign(*token_, text)};
    text += " " + session::to_text(signature);
    return text;
}

std::optional<ControlMessage> Seal::open(std::string_view datagram) const {
    if (!token_) return decode(datagram);
    constexpr std::size_t signature_bytes = 65;  // " " and 64 digits
    if (datagram.size() < signature_bytes || datagram[datagram.size() - signature_bytes] != ' ')
        return std::nullopt;
    const auto signature =
        session::token_from(datagram.substr(datagram.size() - signature_bytes + 1));
    datagram.remove_suffix(signature_bytes);
    if (!signature || !session::equal(signature->bytes, session::sign(*token_, datagram)))
        return std::nullopt;
    return decode(datagram);
}

std::optional<ControlMessage> decode(std::string_view datagram) {
    if (!datagram.starts_with(prefix)) return std::nullopt;
    try {
        ControlMessage message = read_fields(Json::parse(datagram.substr(prefix.size())));
        return is_within_bounds(message) ? std::optional(std::move(message)) : std::nullopt;
    } catch (const std::exception&) {  // not JSON, or a member is missing or has a wrong type
        return std::nullopt;
    }
}

}  // namespace assay::node
