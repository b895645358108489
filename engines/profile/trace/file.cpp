#include "profile/trace/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "core/error.hpp"

namespace assay::heap {
namespace {

constexpr std::uint32_t most_raw = 256u << 20;

bool is_compressed(ChunkKind kind) { return kind != ChunkKind::raw && kind != ChunkKind::events; }

std::uint32_t sum_of(const void* data, std::size_t bytes) {
    return static_cast<std::uint32_t>(XXH3_64bits(data, bytes));
}
std::uint32_t head_sum(const ChunkHead& head) {
    return sum_of(&head, offsetof(ChunkHead, head_sum));
}

}  // namespace

TraceWriter::TraceWriter(const std::string& path, int level)
    : fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)),
      context_(ZSTD_createCCtx()) {
    if (fd_ < 0)
        throw Error("cannot write " + path + ": " + std::strerror(errno),
                    "choose another directory with --output");
    ZSTD_CCtx_setParameter(context_, ZSTD_c_compressionLevel, level);
}

TraceWriter::~TraceWriter() {
    ZSTD_freeCCtx(context_);
    close(fd_);
}

void TraceWriter::write(ChunkHead head, std::span<const std::uint8_t> payload) {
    if (!failed_.empty()) return;
    std::span<const std::uint8_t> stored = payload;
    if (is_compressed(head.kind)) {
        out_.resize(ZSTD_compressBound(payload.size()));
        stored = {out_.data(), ZSTD_compress2(context_, out_.data(), out_.size(), payload.data(),
                                              payload.size())};
    }
    head.raw_bytes = static_cast<std::uint32_t>(payload.size());
    head.stored_bytes = static_cast<std::uint32_t>(stored.size());
    head.payload_sum = sum_of(stored.data(), stored.size());
    head.head_sum = head_sum(head);
    put(&head, sizeof head);
    put(stored.data(), stored.size());
}

void TraceWriter::put(const void* data, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes && failed_.empty();) {
        const ssize_t n = ::write(fd_, static_cast<const char*>(data) + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) failed_ = std::strerror(errno);
        else done += static_cast<std::size_t>(n);
    }
    bytes_ += bytes;
}

TraceReader::TraceReader(const std::string& path, std::uint64_t bytes)
    : context_(ZSTD_createDCtx()) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat about{};
    if (fd < 0 || fstat(fd, &about) != 0) {
        const std::string why = std::strerror(errno);
        if (fd >= 0) close(fd);
        throw Error("cannot read " + path + ": " + why);
    }
    bytes_ = std::min(bytes, static_cast<std::uint64_t>(about.st_size));
    void* at = bytes_ > 0 ? mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;
    close(fd);
    if (at == MAP_FAILED) throw Error("cannot read " + path + ": " + std::strerror(errno));
    data_ = static_cast<const std::uint8_t*>(at);
    scan();
    if (chunks_.empty())
        throw Error(path + " is no heap trace, or nothing of it is whole",
                    "record it anew: assay heap -- PROGRAM");
}

TraceReader::~TraceReader() {
    if (data_ != nullptr) munmap(const_cast<std::uint8_t*>(data_), bytes_);
    ZSTD_freeDCtx(context_);
}

bool TraceReader::is_head(std::uint64_t at, ChunkHead& head) const {
    if (at + sizeof head > bytes_) return false;
    std::memcpy(&head, data_ + at, sizeof head);
    return head.magic == ChunkHead::tag && head.head_sum == head_sum(head) &&
           head.raw_bytes <= most_raw && head.stored_bytes <= bytes_ - at - sizeof head;
}

void TraceReader::scan() {
    for (std::uint64_t at = 0; at < bytes_;) {
        ChunkHead head;
        if (!is_head(at, head)) {
            ++damaged_;
            ++at;
            continue;
        }
        chunks_.push_back({head, at + sizeof head});
        at += sizeof head + head.stored_bytes;
    }
}

bool TraceReader::read(const ChunkPlace& place, Bytes& into) {
    const std::uint8_t* stored = data_ + place.offset;
    into.resize(place.head.raw_bytes);
    if (sum_of(stored, place.head.stored_bytes) != place.head.payload_sum) return false;
    if (!is_compressed(place.head.kind)) {
        into.assign(stored, stored + place.head.stored_bytes);
        return true;
    }
    return ZSTD_decompressDCtx(context_, into.data(), into.size(), stored,
                               place.head.stored_bytes) == place.head.raw_bytes;
}

namespace {

std::span<const std::uint64_t> words_in(const Bytes& payload) {
    return {reinterpret_cast<const std::uint64_t*>(payload.data()),
            payload.size() / sizeof(std::uint64_t)};
}

struct EventSink {
    std::vector<Event>& events;
    void event(const Event& one) { events.push_back(one); }
    void cost(std::uint32_t ticks) {
        if (!events.empty()) events.back().cost = ticks;
    }
    void text(Kind, std::uint64_t, std::span<const std::uint8_t>) {}
};

struct TextSink {
    const std::function<void(Kind, std::span<const std::uint8_t>)>& say;
    void event(const Event&) {}
    void cost(std::uint32_t) {}
    void text(Kind kind, std::uint64_t, std::span<const std::uint8_t> bytes) { say(kind, bytes); }
};

}  // namespace

bool read_events(TraceReader& trace, const ChunkPlace& place, Bytes& room,
                 std::vector<Event>& into) {
    if (!trace.read(place, room)) return false;
    if (place.head.kind != ChunkKind::raw)
        return decode_events(room, place.head.count, place.head.thread, place.head.first, into);
    into.clear();
    into.reserve(std::min<std::size_t>(place.head.count, room.size() / sizeof(std::uint64_t)));
    EventSink sink{into};
    expand(words_in(room), place.head.first, sink);
    return true;
}

void read_texts(const Bytes& payload,
                const std::function<void(Kind, std::span<const std::uint8_t>)>& text) {
    TextSink sink{text};
    expand(words_in(payload), 0, sink);
}

}  // namespace assay::heap
