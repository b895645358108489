// Frames, matching and windows over streams of bytes (see stream_transport.hpp).
#include "transport/direct/stream_transport.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "core/error.hpp"

namespace assay::direct {
namespace {

// Limit of the frames that wait to be sent to a peer: more than the gets of any program at a time.
constexpr std::size_t max_frames = 1U << 20;
// Bytes on their way to a peer, above which a send waits for their arrival.
constexpr std::size_t max_copied = 1U << 20;

}  // namespace

StreamTransport::StreamTransport(Listener listener, Membership self, MeshSettings settings,
                                 std::size_t eager)
    : PeerTransport(std::move(listener), std::move(self), std::move(settings)),
      eager_(eager),
      outboxes_(static_cast<std::size_t>(size())) {
    for (int peer = 0; peer < size(); ++peer) inboxes_.push_back(std::make_unique<Inbox>());
}

void StreamTransport::add_frame(int peer, FrameKind kind, const void* data, std::size_t bytes,
                                Ticket ticket, int tag, std::uint64_t offset,
                                std::uint64_t request) {
    const Header header{frame_magic, kind, 0, tag, bytes, offset, request};
    outbox(peer).add(header, data, has_payload(kind) ? bytes : 0, ticket);
    on_outbox_filled(peer);
}

void StreamTransport::post_send(Ticket ticket, const void* data, std::size_t bytes, int peer,
                                int tag) {
    if (peer != rank()) {
        Outbox& out = outbox(peer);
        if (bytes <= eager_ && out.end() - out.begin() < max_copied) {
            out.add_copy({frame_magic, FrameKind::message, 0, tag, bytes, 0, 0}, data, bytes);
            tickets().complete(ticket, true);
            on_outbox_filled(peer);
        } else {
            add_frame(peer, FrameKind::message, data, bytes, ticket, tag);
        }
        return;
    }
    const auto receive = std::ranges::find(self_receives_, tag, &SelfReceive::tag);
    if (receive == self_receives_.end()) {
        self_sends_.push_back({ticket, data, bytes, tag});
        return;
    }
    if (bytes > 0) std::memcpy(receive->data, data, std::min(bytes, receive->bytes));
    tickets().complete(receive->ticket, true);
    tickets().complete(ticket, true);
    self_receives_.erase(receive);
}

void StreamTransport::post_receive(Ticket ticket, void* data, std::size_t bytes, int peer,
                                   int tag) {
    if (peer != rank()) {
        Inbox& box = inbox(peer);
        if (box.matching_.post(ticket, data, bytes, tag)) tickets().complete(ticket, true);
        // The rest of an arriving payload may belong in the buffer of this receive now.
        if (box.in_payload_ && box.header_.kind == FrameKind::message) {
            const Matching::Arriving& arriving = box.matching_.arriving();
            box.target_ = arriving.target + arriving.received;
        }
        if (box.blocked_) on_receive_posted(peer);
        return;
    }
    const auto send = std::ranges::find(self_sends_, tag, &SelfSend::tag);
    if (send == self_sends_.end()) {
        self_receives_.push_back({ticket, data, bytes, tag});
        return;
    }
    if (bytes > 0) std::memcpy(data, send->data, std::min(bytes, send->bytes));
    tickets().complete(send->ticket, true);
    tickets().complete(ticket, true);
    self_sends_.erase(send);
}

// --- The stream from a peer --------------------------------------------------------------------

std::size_t StreamTransport::consume(int peer, const std::byte* data, std::size_t bytes,
                                     std::string& fault) {
    Inbox& box = inbox(peer);
    std::size_t used = 0;
    while (used < bytes && !box.blocked_ && fault.empty()) {
        if (box.in_payload_) {
            const std::size_t part = std::min(bytes - used, box.payload_left_);
            std::memcpy(box.target_, data + used, part);
            used += part;
            on_payload_bytes(peer, part);
            continue;
        }
        const std::size_t part = std::min(bytes - used, sizeof(Header) - box.header_received_);
        std::memcpy(reinterpret_cast<std::byte*>(&box.header_) + box.header_received_, data + used,
                    part);
        used += part;
        box.header_received_ += part;
        if (box.header_received_ == sizeof(Header)) box.blocked_ = !begin_payload(peer, fault);
    }
    return used;
}

bool StreamTransport::resume(int peer, std::string& fault) {
    Inbox& box = inbox(peer);
    if (box.blocked_) box.blocked_ = !begin_payload(peer, fault);
    return !box.blocked_;
}

void StreamTransport::on_payload_bytes(int peer, std::size_t bytes) {
    Inbox& box = inbox(peer);
    box.target_ += bytes;
    box.payload_left_ -= bytes;
    if (box.header_.kind == FrameKind::message) box.matching_.arriving().received += bytes;
    if (box.payload_left_ == 0) end_payload(peer);
}

// A header is complete. Returns false if its payload cannot be received yet, or never (with
// `fault`).
bool StreamTransport::begin_payload(int peer, std::string& fault) {
    Inbox& box = inbox(peer);
    const Header& header = box.header_;
    if (!is_valid(header)) {
        fault = "it sent bytes that are not a message";
        return false;
    }
    if (!has_payload(header.kind)) {
        answer(peer, header, fault);
        box.header_received_ = 0;
        return fault.empty();
    }
    box.target_ = nullptr;
    if (header.kind == FrameKind::message) {
        const auto begun = box.matching_.begin(header.tag, header.length);
        if (begun == Matching::Begin::too_long)
            fault = fmt::format("its message of {} bytes with tag {} is longer than the receive",
                                header.length, header.tag);
        if (begun != Matching::Begin::accepted) return false;
        box.target_ = box.matching_.arriving().target;
    } else if (header.kind == FrameKind::put) {
        if (is_in_window(header.offset, header.length))
            box.target_ = window_.data() + header.offset;
        else fault = "it wrote outside the window";
    } else if (const auto entry = box.gets_.find(header.request);
               entry != box.gets_.end() && entry->second.bytes == header.length) {
        box.target_ = entry->second.data;
    } else {
        fault = "it answered a request that this rank did not make";
    }
    if (!fault.empty()) return false;
    box.payload_left_ = header.length;
    box.in_payload_ = true;
    if (box.payload_left_ == 0) end_payload(peer);
    return true;
}

void StreamTransport::end_payload(int peer) {
    Inbox& box = inbox(peer);
    box.in_payload_ = false;
    box.header_received_ = 0;
    if (box.header_.kind == FrameKind::message) {
        tickets().complete(box.matching_.end(), true);
    } else if (box.header_.kind == FrameKind::reply) {
        const auto entry = box.gets_.find(box.header_.request);
        tickets().complete(entry->second.ticket, true);
        box.gets_.erase(entry);
    }
}

bool StreamTransport::is_in_window(std::uint64_t offset, std::uint64_t bytes) const {
    return offset <= window_.size() && bytes <= window_.size() - offset;
}

void StreamTransport::answer(int peer, const Header& header, std::string& fault) {
    if (header.kind == FrameKind::flushed) {
        inbox(peer).flushed_ = std::max(inbox(peer).flushed_, header.request);
    } else if (outbox(peer).frames() > max_frames) {
        fault = "it sends requests faster than this rank can answer them";
    } else if (header.kind == FrameKind::flush) {
        add_frame(peer, FrameKind::flushed, nullptr, 0, -1, 0, 0, header.request);
    } else if (is_in_window(header.offset, header.length)) {
        add_frame(peer, FrameKind::reply, window_.data() + header.offset, header.length, -1, 0, 0,
                  header.request);
    } else {
        fault = "it read outside the window";
    }
}

void StreamTransport::reset(int peer) {
    const auto fail = [this](Ticket ticket) { tickets().complete(ticket, false); };
    outbox(peer).clear(fail);
    outbox(peer) = {};
    Inbox& box = inbox(peer);
    for (const Ticket ticket : box.matching_.clear()) fail(ticket);
    for (const auto& [request, get] : box.gets_) fail(get.ticket);
    inboxes_[static_cast<std::size_t>(peer)] = std::make_unique<Inbox>();
}

// --- Windows -----------------------------------------------------------------------------------

std::byte* StreamTransport::create_window(std::size_t bytes) {
    window_.assign(bytes, std::byte{0});
    double value = 0;  // after it every rank has its window, and peers may write into it
    begin_max({&value, 1});
    while (!test_collective()) sched_yield();
    return window_.data();
}

void StreamTransport::free_window() {
    double value = 0;  // after it every get has been answered
    begin_max({&value, 1});
    while (!test_collective()) sched_yield();
    window_.clear();
    window_.shrink_to_fit();
}

Ticket StreamTransport::get(void* data, std::size_t bytes, int peer, std::size_t offset) {
    const Ticket ticket = tickets().allocate();
    if (peer == rank()) {
        if (bytes > 0) std::memcpy(data, window_.data() + offset, bytes);
        tickets().complete(ticket, true);
    } else if (is_connected(peer)) {
        const std::uint64_t request = ++requests_;
        inbox(peer).gets_[request] = {ticket, static_cast<std::byte*>(data), bytes};
        add_frame(peer, FrameKind::get, nullptr, bytes, -1, 0, offset, request);
    } else {
        tickets().complete(ticket, false);
    }
    return ticket;
}

void StreamTransport::put(const void* data, std::size_t bytes, int peer, std::size_t offset) {
    if (peer == rank()) {
        if (bytes > 0) std::memcpy(window_.data() + offset, data, bytes);
    } else if (is_connected(peer)) {
        add_frame(peer, FrameKind::put, data, bytes, -1, 0, offset);
    }
}

void StreamTransport::flush(int peer) {
    if (peer == rank()) return;
    const std::uint64_t request = ++requests_;
    if (is_connected(peer)) add_frame(peer, FrameKind::flush, nullptr, 0, -1, 0, 0, request);
    while (inbox(peer).flushed_ < request) progress_and_check("a flush");
}

}  // namespace assay::direct
