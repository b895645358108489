#include "profile/trace/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "core/error.hpp"

namespace assay::heap {
namespace {

constexpr int level = -4;  // while the program runs, which needs the processors itself
constexpr std::uint32_t most_raw = 256u << 20;

std::uint32_t sum_of(const void* data, std::size_t bytes) { return static_cast<std::uint32_t>(XXH3_64bits(data, bytes)); }
std::uint32_t head_sum(const ChunkHead& head) { return sum_of(&head, offsetof(ChunkHead, head_sum)); }

}  // namespace

TraceWriter::TraceWriter(const std::string& path)
    : fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)), context_(ZSTD_createCCtx()) {
    if (fd_ < 0) throw Error("cannot write " + path + ": " + std::strerror(errno), "choose another directory with --output");
    ZSTD_CCtx_setParameter(context_, ZSTD_c_compressionLevel, level);
}

TraceWriter::~TraceWriter() {
    ZSTD_freeCCtx(context_);
    close(fd_);
}

void TraceWriter::write(ChunkHead head, std::span<const std::uint8_t> payload) {
    if (!failed_.empty()) return;
    out_.resize(sizeof head + ZSTD_compressBound(payload.size()));
    const std::size_t stored = ZSTD_compress2(context_, out_.data() + sizeof head, out_.size() - sizeof head, payload.data(), payload.size());
    head.raw_bytes = static_cast<std::uint32_t>(payload.size());
    head.stored_bytes = static_cast<std::uint32_t>(stored);
    head.payload_sum = sum_of(out_.data() + sizeof head, stored);
    head.head_sum = head_sum(head);
    std::memcpy(out_.data(), &head, sizeof head);
    const std::size_t whole = sizeof head + stored;
    for (std::size_t done = 0; done < whole;) {
        const ssize_t n = ::write(fd_, out_.data() + done, whole - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            failed_ = std::strerror(errno);
            return;
        }
        done += static_cast<std::size_t>(n);
    }
    bytes_ += whole;
}

TraceReader::TraceReader(const std::string& path) : context_(ZSTD_createDCtx()) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat about {};
    if (fd < 0 || fstat(fd, &about) != 0) {
        const std::string why = std::strerror(errno);
        if (fd >= 0) close(fd);
        throw Error("cannot read " + path + ": " + why);
    }
    bytes_ = static_cast<std::uint64_t>(about.st_size);
    void* at = bytes_ > 0 ? mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;
    close(fd);
    if (at == MAP_FAILED) throw Error("cannot read " + path + ": " + std::strerror(errno));
    data_ = static_cast<const std::uint8_t*>(at);
    scan();
    if (chunks_.empty()) throw Error(path + " is no heap trace, or nothing of it is whole", "record it anew: assay heap -- PROGRAM");
}

TraceReader::~TraceReader() {
    if (data_ != nullptr) munmap(const_cast<std::uint8_t*>(data_), bytes_);
    ZSTD_freeDCtx(context_);
}

bool TraceReader::is_head(std::uint64_t at, ChunkHead& head) const {
    if (at + sizeof head > bytes_) return false;
    std::memcpy(&head, data_ + at, sizeof head);
    return head.magic == ChunkHead::tag && head.head_sum == head_sum(head) && head.raw_bytes <= most_raw &&
           head.stored_bytes <= bytes_ - at - sizeof head;
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
    return sum_of(stored, place.head.stored_bytes) == place.head.payload_sum &&
           ZSTD_decompressDCtx(context_, into.data(), into.size(), stored, place.head.stored_bytes) == place.head.raw_bytes;
}

}  // namespace assay::heap
