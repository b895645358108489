// Writes and reads the chunks of a trace file (trace/format.hpp).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "profile/trace/format.hpp"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace assay::heap {

struct FreeContext {
    void operator()(ZSTD_CCtx_s* context) const;
    void operator()(ZSTD_DCtx_s* context) const;
};

// Writes a trace. A full disk does not end the program: after the first failed write nothing more
// is written, and error() holds the reason.
class TraceWriter {
public:
    // `level`: zstd's compression level. Throws Error if the file cannot be created.
    explicit TraceWriter(const std::string& path, int level = 1);
    ~TraceWriter();
    TraceWriter(const TraceWriter&) = delete;
    TraceWriter& operator=(const TraceWriter&) = delete;

    // Writes a chunk. Fills in the lengths and checksums of `header`.
    void write(ChunkHeader header, std::span<const std::uint8_t> payload);
    const std::string& error() const { return error_; }  // empty: none
    std::uint64_t bytes() const { return bytes_; }

private:
    void put(const void* data, std::size_t bytes);

    int fd_;
    std::unique_ptr<ZSTD_CCtx_s, FreeContext> context_;
    Bytes compressed_;
    std::uint64_t bytes_ = 0;
    std::string error_;
};

// A chunk in a trace; its header is valid, its payload has not been read.
struct ChunkRef {
    ChunkHeader header;
    std::uint64_t offset;  // of the payload in the file
};

class TraceReader {
public:
    // Reads only the first `bytes` of a trace that is still being written. Throws Error when the
    // file cannot be read or holds no chunk.
    explicit TraceReader(const std::string& path, std::uint64_t bytes = ~std::uint64_t{0});
    ~TraceReader();
    TraceReader(const TraceReader&) = delete;
    TraceReader& operator=(const TraceReader&) = delete;

    const std::vector<ChunkRef>& chunks() const { return chunks_; }
    std::uint64_t damaged_bytes() const { return damaged_bytes_; }  // bytes outside of whole chunks
    std::uint64_t bytes() const { return bytes_; }                  // bytes read
    // Reads and decompresses a payload. Returns false if it does not match its checksum.
    bool read(const ChunkRef& chunk, Bytes& destination);

private:
    void scan();
    bool read_header(std::uint64_t offset, ChunkHeader& header) const;

    const std::uint8_t* data_ = nullptr;
    std::uint64_t bytes_ = 0, damaged_bytes_ = 0;
    std::unique_ptr<ZSTD_DCtx_s, FreeContext> context_;
    std::vector<ChunkRef> chunks_;
};

// Reads the events of a chunk, raw or packed. `buffer` holds the payload meanwhile. Returns false
// if the chunk is damaged.
bool read_events(TraceReader& trace, const ChunkRef& chunk, Bytes& buffer,
                 std::vector<Event>& destination);

// Calls visit(kind, text) for each text in the payload of a raw chunk.
void read_texts(const Bytes& payload,
                const std::function<void(Kind, std::span<const std::uint8_t>)>& visit);

}  // namespace assay::heap
