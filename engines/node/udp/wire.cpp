#include "node/udp/wire.hpp"

#include <nlohmann/json.hpp>

namespace assay::node {
namespace {

using Json = nlohmann::json;

constexpr std::string_view mark = "assay-udp/1 ";

std::string dressed(Json words, const char* kind, std::uint64_t run) {
    words["say"] = kind;
    words["run"] = run;
    // A host's name need not be UTF-8.
    return std::string(mark) + words.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Word read(const Json& j) {
    const auto say = j.at("say").get<std::string>();
    const auto run = j.at("run").get<std::uint64_t>();
    Word word;
    if (say == "hello")
        word.hello = Hello{run,          j.at("size"),    j.at("planned"), j.at("streams"),
                           j.at("rate"), j.at("seconds"), j.at("host")};
    else if (say == "welcome") word.welcome = Welcome{run, j.at("sockets"), j.at("host")};
    else if (say == "refusal") word.refusal = Refusal{run, j.at("why"), j.at("fix")};
    else if (say == "end")
        word.end =
            End{run, j.at("sent"), j.at("rate"), j.at("dropped"), j.at("pause"), j.at("gso")};
    else if (say == "report")
        word.report = Report{run, j.at("received"), j.at("lost"), j.at("bandwidth")};
    else throw std::invalid_argument(say);
    return word;
}

// Bounds within which the numbers of a stranger can be reckoned with.
bool is_sound(const Word& word) {
    if (word.hello) {
        const Hello& h = *word.hello;
        return h.streams >= 1 && h.streams <= 128 && h.size >= DataHeader::bytes &&
               h.size <= 65535 && h.planned >= 1 && h.rate > 0 && h.rate <= 1e13 && h.seconds > 0 &&
               h.seconds <= 1e6;
    }
    if (word.welcome) return word.welcome->sockets >= 1 && word.welcome->sockets <= 128;
    return true;
}

}  // namespace

std::vector<std::byte> payload_of(std::uint64_t run, std::size_t size) {
    std::vector<std::byte> payload(size);
    std::uint64_t state = run;
    for (std::byte& byte : payload) {
        state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX
        byte = static_cast<std::byte>(state >> 56);
    }
    return payload;
}

std::string encode(const Hello& h) {
    return dressed({{"size", h.size},
                    {"planned", h.planned},
                    {"streams", h.streams},
                    {"rate", h.rate},
                    {"seconds", h.seconds},
                    {"host", h.host}},
                   "hello", h.run);
}
std::string encode(const Welcome& w) {
    return dressed({{"sockets", w.sockets}, {"host", w.host}}, "welcome", w.run);
}
std::string encode(const Refusal& r) {
    return dressed({{"why", r.why}, {"fix", r.fix}}, "refusal", r.run);
}
std::string encode(const End& e) {
    return dressed({{"sent", e.sent},
                    {"rate", e.rate},
                    {"dropped", e.dropped},
                    {"pause", e.pause},
                    {"gso", e.gso}},
                   "end", e.run);
}
std::string encode(const Report& r) {
    return dressed({{"received", r.received}, {"lost", r.lost}, {"bandwidth", r.bandwidth}},
                   "report", r.run);
}

std::optional<Word> decode(std::string_view datagram) {
    if (!datagram.starts_with(mark)) return std::nullopt;
    try {
        Word word = read(Json::parse(datagram.substr(mark.size())));
        return is_sound(word) ? std::optional(std::move(word)) : std::nullopt;
    } catch (const std::exception&) {  // not JSON, a member missing or of another kind
        return std::nullopt;
    }
}

}  // namespace assay::node
