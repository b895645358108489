#include "storage/accelerator/caller.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace assay::storage {
namespace {

constexpr int patience_ms = 3000;  // for a connection
constexpr int answer_ms = 60'000;  // for the next byte of an answer
constexpr std::size_t asked_at_once = 64;
constexpr std::uint64_t least_ahead = 256u << 10, most_ahead = 4u << 20;

bool send_all(int fd, const void* data, std::size_t bytes) {
    for (const char* at = static_cast<const char*>(data); bytes;) {
        const ssize_t got = send(fd, at, bytes, MSG_NOSIGNAL);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

bool receive_all(int fd, void* data, std::size_t bytes) {
    for (char* at = static_cast<char*>(data); bytes;) {
        const ssize_t got = recv(fd, at, bytes, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;  // also after answer_ms without a byte
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

void limit(int fd, int milliseconds) {
    const timeval time{milliseconds / 1000, milliseconds % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

}  // namespace

std::unique_ptr<Caller> Caller::reach(std::uint32_t host, std::uint32_t port, const Key& key) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return nullptr;
    std::unique_ptr<Caller> caller(new Caller(fd));
    limit(fd, patience_ms);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = host;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Key answer{};
    const bool good = connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
                      send_all(fd, key.data(), sizeof key) &&
                      receive_all(fd, answer.data(), sizeof answer) && answer == key;
    if (!good) return nullptr;
    limit(fd, answer_ms);
    return caller;
}

Caller::~Caller() { close(fd_); }

bool Caller::fetch(std::vector<Asked>& asked) {
    bool good = true;
    if (asked.size() == 1) good = one(asked[0].rank, *asked[0].wanted);
    else good = take_early() && many(asked);
    if (!good)
        for (auto& each : asked) each.wanted->fate = Wanted::failed;
    return good;
}

bool Caller::pointer(std::uint32_t slot, std::int64_t amount, bool set, std::uint64_t& before) {
    const Request request{set ? Request::set : Request::add, slot, 0,
                          static_cast<std::uint64_t>(amount)};
    return take_early() && send_all(fd_, &request, sizeof request) &&
           receive_all(fd_, &before, sizeof before);
}

bool Caller::ask_for_news(std::uint64_t now, bool hurry) {
    const Request request{Request::news, 0, now, hurry};
    return take_early() && send_all(fd_, &request, sizeof request);
}

bool Caller::take_news(std::uint64_t now, const Tell& tell, News& news) {
    do {
        std::uint64_t head = 0, tail = 0;
        if (!receive_all(fd_, &head, sizeof head) || head < sizeof news) return false;
        std::vector<char> text(head);
        if (!receive_all(fd_, text.data(), head) || !receive_all(fd_, &tail, sizeof tail))
            return false;
        std::memcpy(&news, text.data(), sizeof news);
        for (std::size_t at = sizeof news; at + sizeof(Entry) <= head;) {
            Entry entry;
            std::memcpy(&entry, text.data() + at, sizeof entry);
            at += sizeof entry;
            for (std::uint32_t k = 0; k < entry.records && at + sizeof(Record) <= head;
                 ++k, at += sizeof(Record)) {
                Record record;
                std::memcpy(&record, text.data() + at, sizeof record);
                tell(entry.rank, entry.first + k, record);
            }
        }
    } while (news.more && ask_for_news(now, false));
    return !news.more;
}

// The answer to a request of exactly so many bytes.
bool Caller::answer(char* to, std::uint64_t bytes, Wanted::Fate& fate) {
    std::uint64_t head = 0, tail = 0;
    if (!receive_all(fd_, &head, sizeof head)) return false;
    fate = Wanted::gone;
    if (!head) return true;
    if (head != bytes) return false;
    if (!receive_all(fd_, to, bytes) || !receive_all(fd_, &tail, sizeof tail)) return false;
    if (tail) fate = Wanted::had;
    return true;
}

// Many requests are on their way before the first answer: a strided read costs one round trip, not
// one a block.
bool Caller::many(std::vector<Asked>& asked) {
    std::size_t sent = 0;
    for (std::size_t k = 0; k < asked.size(); ++k) {
        if (sent == k) {
            std::vector<Request> requests;
            for (; sent < asked.size() && requests.size() < asked_at_once; ++sent)
                requests.push_back({Request::bytes, asked[sent].rank, asked[sent].wanted->place,
                                    asked[sent].wanted->bytes});
            if (!send_all(fd_, requests.data(), requests.size() * sizeof(Request))) return false;
        }
        Wanted& wanted = *asked[k].wanted;
        if (!answer(wanted.to, wanted.bytes, wanted.fate)) return false;
    }
    return true;
}

bool Caller::one(std::uint32_t rank, Wanted& wanted) {
    const bool in_turn = rank == last_rank_ && wanted.place == last_end_;
    last_rank_ = rank;
    last_end_ = wanted.place + wanted.bytes;
    std::uint64_t had = from_early(rank, wanted.place, wanted.bytes, wanted.to);
    if (had < wanted.bytes) {
        if (!take_early()) return false;
        had += from_early(rank, wanted.place + had, wanted.bytes - had, wanted.to + had);
    }
    if (had < wanted.bytes) {
        const Request request{Request::bytes, rank, wanted.place + had, wanted.bytes - had};
        if (!send_all(fd_, &request, sizeof request) ||
            !answer(wanted.to + had, wanted.bytes - had, wanted.fate))
            return false;
        if (wanted.fate != Wanted::had) return true;
    }
    wanted.fate = Wanted::had;
    if (!in_turn || waiting_) return true;
    const std::uint64_t early_end = early_.rank == rank ? early_.place + early_.bytes.size() : 0;
    return ask_ahead(rank, std::max(early_end, last_end_),
                     std::clamp(8 * wanted.bytes, least_ahead, most_ahead));
}

bool Caller::ask_ahead(std::uint32_t rank, std::uint64_t place, std::uint64_t bytes) {
    ahead_ = {Request::some, rank, place, bytes};
    waiting_ = send_all(fd_, &ahead_, sizeof ahead_);
    return waiting_;
}

// What was asked for ahead, in place of what came early before.
bool Caller::take_early() {
    if (!waiting_) return true;
    waiting_ = false;
    early_.bytes.clear();
    std::uint64_t head = 0, tail = 0;
    if (!receive_all(fd_, &head, sizeof head) || head > ahead_.amount) return false;
    if (!head) return true;
    early_.rank = ahead_.rank;
    early_.place = ahead_.place;
    early_.bytes.resize(head);
    if (!receive_all(fd_, early_.bytes.data(), head) || !receive_all(fd_, &tail, sizeof tail))
        return false;
    if (!tail) early_.bytes.clear();
    return true;
}

std::uint64_t Caller::from_early(std::uint32_t rank, std::uint64_t place, std::uint64_t bytes,
                                 char* to) const {
    if (rank != early_.rank || place < early_.place || place >= early_.place + early_.bytes.size())
        return 0;
    const std::uint64_t skip = place - early_.place,
                        n = std::min(bytes, early_.bytes.size() - skip);
    std::memcpy(to, early_.bytes.data() + skip, n);
    return n;
}

}  // namespace assay::storage
