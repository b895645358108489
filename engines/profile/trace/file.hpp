// Writing and reading the chunks of a trace.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "profile/trace/format.hpp"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace assay::heap {

// A disk that is full ends the trace, not the program: `failed` says so from then on.
class TraceWriter {
public:
    explicit TraceWriter(const std::string& path, int level = 1);  // zstd's; throws Error
    ~TraceWriter();
    TraceWriter(const TraceWriter&) = delete;
    TraceWriter& operator=(const TraceWriter&) = delete;

    // `head` but for its lengths and sums.
    void write(ChunkHead head, std::span<const std::uint8_t> payload);
    const std::string& failed() const { return failed_; }
    std::uint64_t bytes() const { return bytes_; }

private:
    void put(const void* data, std::size_t bytes);

    int fd_;
    ZSTD_CCtx_s* context_;
    Bytes out_;
    std::uint64_t bytes_ = 0;
    std::string failed_;
};

// A chunk that has been found whole by its head; its payload is read when it is asked for.
struct ChunkPlace {
    ChunkHead head;
    std::uint64_t offset;  // of the payload
};

class TraceReader {
public:
    // Of a trace that is still being written, the first `bytes`. Throws Error: not there, no trace.
    explicit TraceReader(const std::string& path, std::uint64_t bytes = ~std::uint64_t{0});
    ~TraceReader();
    TraceReader(const TraceReader&) = delete;
    TraceReader& operator=(const TraceReader&) = delete;

    const std::vector<ChunkPlace>& chunks() const { return chunks_; }
    std::uint64_t damaged() const { return damaged_; }  // bytes that belong to no whole chunk
    std::uint64_t bytes() const { return bytes_; }      // read
    // False when the payload is not what its sum says.
    bool read(const ChunkPlace& place, Bytes& into);

private:
    void scan();
    bool is_head(std::uint64_t at, ChunkHead& head) const;

    const std::uint8_t* data_ = nullptr;
    std::uint64_t bytes_ = 0, damaged_ = 0;
    ZSTD_DCtx_s* context_;
    std::vector<ChunkPlace> chunks_;
};

// The events of a chunk of either kind; `room` is for its payload. False when it is damaged.
bool read_events(TraceReader& trace, const ChunkPlace& place, Bytes& room,
                 std::vector<Event>& into);

// The texts among the events of a raw chunk: text(kind, time, bytes).
void read_texts(const Bytes& payload,
                const std::function<void(Kind, std::span<const std::uint8_t>)>& text);

}  // namespace assay::heap
