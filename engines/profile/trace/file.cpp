// Writes and reads trace files: chunk headers, checksums and compression.
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
#include "profile/heap/event_decoder.hpp"

namespace assay::heap {
namespace {

constexpr std::uint32_t max_raw_bytes = 256u << 20;

bool is_compressed(ChunkKind kind) { return kind != ChunkKind::raw && kind != ChunkKind::events; }

std::uint32_t checksum(const void* data, std::size_t bytes) {
    return static_cast<std::uint32_t>(XXH3_64bits(data, bytes));
}
std::uint32_t checksum_of(const ChunkHeader& header) {
    return checksum(&header, offsetof(ChunkHeader, header_checksum));
}

}  // namespace

void FreeContext::operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
void FreeContext::operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }

TraceWriter::TraceWriter(const std::string& path, int level)
    : fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)),
      context_(ZSTD_createCCtx()) {
    if (fd_ < 0)
        throw Error("cannot write " + path + ": " + std::strerror(errno),
                    "choose another directory with --output");
    ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, level);
}

TraceWriter::~TraceWriter() { close(fd_); }

void TraceWriter::write(ChunkHeader header, std::span<const std::uint8_t> payload) {
    if (!error_.empty()) return;
    std::span<const std::uint8_t> stored = payload;
    if (is_compressed(header.kind)) {
        compressed_.resize(ZSTD_compressBound(payload.size()));
        stored = {compressed_.data(),
                  ZSTD_compress2(context_.get(), compressed_.data(), compressed_.size(),
                                 payload.data(), payload.size())};
    }
    header.raw_bytes = static_cast<std::uint32_t>(payload.size());
    header.stored_bytes = static_cast<std::uint32_t>(stored.size());
    header.payload_checksum = checksum(stored.data(), stored.size());
    header.header_checksum = checksum_of(header);
    put(&header, sizeof header);
    put(stored.data(), stored.size());
}

void TraceWriter::put(const void* data, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes && error_.empty();) {
        const ssize_t n = ::write(fd_, static_cast<const char*>(data) + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) error_ = std::strerror(errno);
        else done += static_cast<std::size_t>(n);
    }
    bytes_ += bytes;
}

TraceReader::TraceReader(const std::string& path, std::uint64_t bytes)
    : context_(ZSTD_createDCtx()) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status{};
    if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        const std::string reason = fd < 0 ? std::strerror(errno) : "not a regular file";
        if (fd >= 0) close(fd);
        throw Error("cannot read " + path + ": " + reason);
    }
    bytes_ = std::min(bytes, static_cast<std::uint64_t>(status.st_size));
    void* mapping = bytes_ > 0 ? mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;
    close(fd);
    if (mapping == MAP_FAILED) throw Error("cannot read " + path + ": " + std::strerror(errno));
    data_ = static_cast<const std::uint8_t*>(mapping);
    scan();
    if (chunks_.empty()) {
        if (data_ != nullptr) munmap(mapping, bytes_);
        throw Error(path + " is not a heap trace, or none of its chunks is readable",
                    "record it again: assay heap -- PROGRAM");
    }
}

TraceReader::~TraceReader() {
    if (data_ != nullptr) munmap(const_cast<std::uint8_t*>(data_), bytes_);
}

bool TraceReader::read_header(std::uint64_t offset, ChunkHeader& header) const {
    if (offset + sizeof header > bytes_) return false;
    std::memcpy(&header, data_ + offset, sizeof header);
    return header.magic == ChunkHeader::expected_magic &&
           header.header_checksum == checksum_of(header) && header.raw_bytes <= max_raw_bytes &&
           header.stored_bytes <= bytes_ - offset - sizeof header;
}

void TraceReader::scan() {
    for (std::uint64_t offset = 0; offset < bytes_;) {
        ChunkHeader header;
        if (!read_header(offset, header)) {
            ++damaged_bytes_;
            ++offset;
            continue;
        }
        chunks_.push_back({header, offset + sizeof header});
        offset += sizeof header + header.stored_bytes;
    }
}

bool TraceReader::read(const ChunkRef& chunk, Bytes& output) {
    const std::uint8_t* stored = data_ + chunk.offset;
    output.clear();
    if (checksum(stored, chunk.header.stored_bytes) != chunk.header.payload_checksum) return false;
    if (!is_compressed(chunk.header.kind)) {
        output.assign(stored, stored + chunk.header.stored_bytes);
        return true;
    }
    if (ZSTD_getFrameContentSize(stored, chunk.header.stored_bytes) != chunk.header.raw_bytes)
        return false;
    output.resize(chunk.header.raw_bytes);
    return ZSTD_decompressDCtx(context_.get(), output.data(), output.size(), stored,
                               chunk.header.stored_bytes) == chunk.header.raw_bytes;
}

namespace {

std::span<const std::uint64_t> as_words(const Bytes& payload) {
    return {reinterpret_cast<const std::uint64_t*>(payload.data()),
            payload.size() / sizeof(std::uint64_t)};
}

struct EventSink {
    std::vector<Event>& events;
    void event(const Event& event) { events.push_back(event); }
    void call_ticks(std::uint32_t ticks) {
        if (!events.empty()) events.back().call_ticks = ticks;
    }
    void text(Kind, std::uint64_t, std::span<const std::uint8_t>) {}
};

struct TextSink {
    const std::function<void(Kind, std::span<const std::uint8_t>)>& visit;
    void event(const Event&) {}
    void call_ticks(std::uint32_t) {}
    void text(Kind kind, std::uint64_t, std::span<const std::uint8_t> bytes) { visit(kind, bytes); }
};

}  // namespace

bool read_events(TraceReader& trace, const ChunkRef& chunk, Bytes& buffer,
                 std::vector<Event>& output) {
    if (!trace.read(chunk, buffer)) return false;
    if (chunk.header.kind != ChunkKind::raw)
        return decode_columns(buffer, chunk.header.count, chunk.header.thread, chunk.header.first,
                              output);
    output.clear();
    output.reserve(
        std::min<std::size_t>(chunk.header.count, buffer.size() / sizeof(std::uint64_t)));
    EventSink sink{output};
    decode_buffer(as_words(buffer), chunk.header.first, sink);
    return true;
}

void read_texts(const Bytes& payload,
                const std::function<void(Kind, std::span<const std::uint8_t>)>& visit) {
    TextSink sink{visit};
    decode_buffer(as_words(payload), 0, sink);
}

}  // namespace assay::heap
