// The client side of the service (service.hpp): sends requests over TCP and receives the answers,
// with readahead for sequential reads.
#include "storage/accelerator/service_client.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace assay::storage {
namespace {

constexpr int connect_timeout_ms = 3000;
constexpr int answer_timeout_ms = 60'000;  // for the next byte of an answer
constexpr std::size_t max_in_flight = 64;
constexpr std::uint64_t min_readahead = 256u << 10, max_readahead = 4u << 20;

bool send_all(int fd, const void* data, std::size_t bytes) {
    for (const char* next = static_cast<const char*>(data); bytes;) {
        const ssize_t count = send(fd, next, bytes, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        next += count;
        bytes -= static_cast<std::size_t>(count);
    }
    return true;
}

bool receive_all(int fd, void* data, std::size_t bytes) {
    for (char* next = static_cast<char*>(data); bytes;) {
        const ssize_t count = recv(fd, next, bytes, 0);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;  // also after a timeout
        next += count;
        bytes -= static_cast<std::size_t>(count);
    }
    return true;
}

void set_timeout(int fd, int milliseconds) {
    const timeval time{milliseconds / 1000, milliseconds % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

}  // namespace

std::unique_ptr<ServiceClient> ServiceClient::connect_to(std::uint32_t host, std::uint32_t port,
                                                         const session::Token& token) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return nullptr;
    std::unique_ptr<ServiceClient> client(new ServiceClient(fd));
    set_timeout(fd, connect_timeout_ms);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = host;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const bool succeeded = connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
                           session::introduce(fd, token, service_purpose);
    if (!succeeded) return nullptr;
    set_timeout(fd, answer_timeout_ms);
    return client;
}

ServiceClient::~ServiceClient() { close(fd_); }

// Checks first whether the service has closed the idle connection.
bool ServiceClient::send_request(const void* data, std::size_t bytes) {
    char byte;
    closed_ = recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
    return !closed_ && send_all(fd_, data, bytes);
}

// Receives the first 8 bytes of an answer: the length of the data that follow (0: none), or the old
// value of a shared file pointer.
bool ServiceClient::receive_first_word(std::uint64_t& word) {
    char byte;
    ssize_t count;
    while ((count = recv(fd_, &byte, 1, MSG_PEEK)) < 0 && errno == EINTR) {
    }
    closed_ = count == 0;
    return count > 0 && receive_all(fd_, &word, sizeof word);
}

bool ServiceClient::fetch(std::vector<NodeRead>& reads) {
    bool succeeded = true;
    if (reads.size() == 1) succeeded = fetch_one(reads[0].rank, *reads[0].read);
    else succeeded = receive_readahead() && fetch_pipelined(reads);
    if (!succeeded)
        for (auto& node_read : reads) node_read.read->state = RemoteRead::failed;
    return succeeded;
}

bool ServiceClient::update_shared_file_pointer(std::uint32_t slot, std::int64_t amount, bool set,
                                               std::uint64_t& before) {
    const Request request{set ? Request::set_pointer : Request::add_pointer, slot, 0,
                          static_cast<std::uint64_t>(amount)};
    return receive_readahead() && send_request(&request, sizeof request) &&
           receive_first_word(before);
}

bool ServiceClient::request_updates(std::uint64_t logical_time, Push push,
                                    const std::vector<std::uint64_t>& positions) {
    const Request request{Request::updates, static_cast<std::uint32_t>(positions.size()),
                          logical_time, static_cast<std::uint64_t>(push)};
    std::vector<char> message(sizeof request + positions.size() * sizeof(std::uint64_t));
    std::memcpy(message.data(), &request, sizeof request);
    std::memcpy(message.data() + sizeof request, positions.data(),
                positions.size() * sizeof(std::uint64_t));
    return receive_readahead() && send_request(message.data(), message.size());
}

bool ServiceClient::receive_updates(std::uint64_t logical_time,
                                    std::vector<std::uint64_t>& positions,
                                    const RecordHandler& handle, Update& update) {
    const std::uint64_t max_payload =
        sizeof update +
        positions.size() * (sizeof(RankRecords) + max_update_records * sizeof(Record));
    do {
        std::uint64_t length = 0, tail = 0;
        if (!receive_first_word(length) || length < sizeof update || length > max_payload)
            return false;
        std::vector<char> payload(length);
        if (!receive_all(fd_, payload.data(), length) || !receive_all(fd_, &tail, sizeof tail))
            return false;
        std::memcpy(&update, payload.data(), sizeof update);
        for (std::size_t offset = sizeof update; offset < length;) {
            RankRecords header;
            if (length - offset < sizeof header) return false;
            std::memcpy(&header, payload.data() + offset, sizeof header);
            offset += sizeof header;
            if (header.rank >= positions.size() ||
                header.records > (length - offset) / sizeof(Record))
                return false;
            for (std::uint32_t k = 0; k < header.records; ++k, offset += sizeof(Record)) {
                Record record;
                std::memcpy(&record, payload.data() + offset, sizeof record);
                handle(header.rank, header.first + k, record, update.progress);
            }
            positions[header.rank] = header.first + header.records;
        }
    } while (update.has_more && request_updates(logical_time, Push::none, positions));
    return !update.has_more;
}

// Receives the answer to a request of exactly `bytes` bytes.
bool ServiceClient::receive_answer(char* to, std::uint64_t bytes, RemoteRead::State& state) {
    std::uint64_t length = 0, tail = 0;
    if (!receive_first_word(length)) return false;
    state = RemoteRead::evicted;
    if (!length) return true;
    if (length != bytes) return false;
    if (!receive_all(fd_, to, bytes) || !receive_all(fd_, &tail, sizeof tail)) return false;
    if (tail) state = RemoteRead::received;
    return true;
}

// Sends up to 64 requests before the first answer arrives, so that a strided read does not cost a
// round trip per block.
bool ServiceClient::fetch_pipelined(std::vector<NodeRead>& reads) {
    std::size_t sent = 0;
    for (std::size_t k = 0; k < reads.size(); ++k) {
        if (sent == k) {
            std::vector<Request> requests;
            for (; sent < reads.size() && requests.size() < max_in_flight; ++sent)
                requests.push_back({Request::read, reads[sent].rank, reads[sent].read->ring_offset,
                                    reads[sent].read->bytes});
            // Only the first batch must check for a closed connection: later ones follow answers.
            const std::size_t bytes = requests.size() * sizeof(Request);
            if (!(k == 0 ? send_request(requests.data(), bytes)
                         : send_all(fd_, requests.data(), bytes)))
                return false;
        }
        RemoteRead& read = *reads[k].read;
        if (!receive_answer(read.buffer, read.bytes, read.state)) return false;
    }
    return true;
}

// Reads one range, and requests a readahead if it follows the previous read.
bool ServiceClient::fetch_one(std::uint32_t rank, RemoteRead& read) {
    const bool sequential = rank == last_rank_ && read.ring_offset == last_end_;
    last_rank_ = rank;
    last_end_ = read.ring_offset + read.bytes;
    std::uint64_t copied = copy_readahead(rank, read.ring_offset, read.bytes, read.buffer);
    if (copied < read.bytes) {
        if (!receive_readahead()) return false;
        copied += copy_readahead(rank, read.ring_offset + copied, read.bytes - copied,
                                 read.buffer + copied);
    }
    if (copied < read.bytes) {
        const Request request{Request::read, rank, read.ring_offset + copied, read.bytes - copied};
        if (!send_request(&request, sizeof request) ||
            !receive_answer(read.buffer + copied, read.bytes - copied, read.state))
            return false;
        if (read.state != RemoteRead::received) return true;
    }
    read.state = RemoteRead::received;
    if (!sequential || readahead_pending_) return true;
    const std::uint64_t readahead_end =
        readahead_.rank == rank ? readahead_.ring_offset + readahead_.bytes.size() : 0;
    return request_readahead(rank, std::max(readahead_end, last_end_),
                             std::clamp(8 * read.bytes, min_readahead, max_readahead));
}

bool ServiceClient::request_readahead(std::uint32_t rank, std::uint64_t ring_offset,
                                      std::uint64_t bytes) {
    readahead_request_ = {Request::read_available, rank, ring_offset, bytes};
    readahead_pending_ = send_all(fd_, &readahead_request_, sizeof readahead_request_);
    return readahead_pending_;
}

// Receives the answer to a readahead request; it replaces the earlier readahead.
bool ServiceClient::receive_readahead() {
    if (!readahead_pending_) return true;
    readahead_pending_ = false;
    readahead_.bytes.clear();
    std::uint64_t length = 0, tail = 0;
    if (!receive_first_word(length) || length > readahead_request_.amount) return false;
    if (!length) return true;
    readahead_.rank = readahead_request_.rank;
    readahead_.ring_offset = readahead_request_.ring_offset;
    readahead_.bytes.resize(length);
    if (!receive_all(fd_, readahead_.bytes.data(), length) || !receive_all(fd_, &tail, sizeof tail))
        return false;
    if (!tail) readahead_.bytes.clear();
    return true;
}

// Copies bytes from the readahead. Returns the number of bytes copied.
std::uint64_t ServiceClient::copy_readahead(std::uint32_t rank, std::uint64_t ring_offset,
                                            std::uint64_t bytes, char* to) const {
    if (rank != readahead_.rank || ring_offset < readahead_.ring_offset ||
        ring_offset >= readahead_.ring_offset + readahead_.bytes.size())
        return 0;
    const std::uint64_t skip = ring_offset - readahead_.ring_offset,
                        bytes_copied = std::min(bytes, readahead_.bytes.size() - skip);
    std::memcpy(to, readahead_.bytes.data() + skip, bytes_copied);
    return bytes_copied;
}

}  // namespace assay::storage
