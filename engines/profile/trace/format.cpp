// Encodes and decodes events as compressed columns.
#include "profile/trace/format.hpp"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <memory>

namespace assay::heap {
namespace {

// Bits in the column of kinds.
constexpr std::uint8_t kind_mask = 15, has_call_ticks = 16, other_thread = 32, raw_address = 64;
constexpr std::uint64_t number_mask = (std::uint64_t{1} << block_number_bits) - 1;
constexpr std::size_t max_values = 2;  // values of one event in one column
constexpr std::size_t max_stream_bytes = 256u << 20;
constexpr int level = 9;
constexpr int max_min_match = 7, min_hash_log = 6;  // limits of zstd's parameters

// Compresses each stream in two ways and keeps the shorter result: with full match search, and with
// almost only entropy coding, which is better for random data.
class StreamCompressor {
public:
    StreamCompressor() : match_context_(ZSTD_createCCtx()), entropy_context_(ZSTD_createCCtx()) {
        ZSTD_CCtx_setParameter(match_context_.get(), ZSTD_c_compressionLevel, level);
        ZSTD_CCtx_setParameter(entropy_context_.get(), ZSTD_c_compressionLevel, 1);
        ZSTD_CCtx_setParameter(entropy_context_.get(), ZSTD_c_strategy, ZSTD_fast);
        ZSTD_CCtx_setParameter(entropy_context_.get(), ZSTD_c_minMatch, max_min_match);
        ZSTD_CCtx_setParameter(entropy_context_.get(), ZSTD_c_hashLog, min_hash_log);
    }
    void append(std::span<const std::uint8_t> bytes, Bytes& output) {
        put_varint(output, bytes.size());
        if (bytes.empty()) return;
        const std::size_t bound = ZSTD_compressBound(bytes.size());
        output_.resize(2 * bound);
        const std::size_t matched_bytes = ZSTD_compress2(match_context_.get(), output_.data(),
                                                         bound, bytes.data(), bytes.size()),
                          entropy_bytes =
                              ZSTD_compress2(entropy_context_.get(), output_.data() + bound, bound,
                                             bytes.data(), bytes.size());
        const std::span<const std::uint8_t> smaller =
            matched_bytes <= entropy_bytes ? std::span(output_.data(), matched_bytes)
                                           : std::span(output_.data() + bound, entropy_bytes);
        put_varint(output, smaller.size());
        output.insert(output.end(), smaller.begin(), smaller.end());
    }

private:
    struct Free {
        void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
    };
    std::unique_ptr<ZSTD_CCtx, Free> match_context_, entropy_context_;
    Bytes output_;
};

// Writes a column. clear() reserves memory for the worst case.
class ColumnWriter {
public:
    void clear(std::size_t values) {
        if (first_bytes_.size() < values) {
            first_bytes_.resize(values);
            other_bytes_.resize(values * (max_varint_bytes - 1));
        }
        next_first_ = first_bytes_.data();
        next_other_ = other_bytes_.data();
    }
    void put(std::uint64_t value) {
        std::uint8_t** next = &next_first_;
        encode_varint(value, [&](std::uint8_t byte) {
            *(*next)++ = byte;
            next = &next_other_;
        });
    }
    void append_to(Bytes& output, StreamCompressor& compressor) const {
        compressor.append({first_bytes_.data(), static_cast<const std::uint8_t*>(next_first_)},
                          output);
        compressor.append({other_bytes_.data(), static_cast<const std::uint8_t*>(next_other_)},
                          output);
    }

private:
    Bytes first_bytes_, other_bytes_;
    std::uint8_t *next_first_ = nullptr, *next_other_ = nullptr;
};

// Reads a column. ok() becomes false if it is damaged or ends early.
class ColumnReader {
public:
    void load(VarintReader& input, std::size_t values) {
        ok_ = decompress(input, values, first_bytes_) &&
              decompress(input, values * (max_varint_bytes - 1), other_bytes_);
        if (!ok_) first_bytes_.clear();
        next_first_ = first_bytes_.data();
        next_other_ = other_bytes_.data();
    }
    std::size_t values() const { return first_bytes_.size(); }
    std::uint64_t varint() {
        const std::uint8_t** next = &next_first_;
        const std::uint8_t* end = first_bytes_.data() + first_bytes_.size();
        std::uint64_t value = 0;
        const bool is_complete = decode_varint(value, [&](std::uint8_t& byte) {
            if (*next == end) return false;
            byte = *(*next)++;
            next = &next_other_;
            end = other_bytes_.data() + other_bytes_.size();
            return true;
        });
        ok_ = ok_ && is_complete;
        return value;
    }
    bool ok() const { return ok_; }

private:
    static bool decompress(VarintReader& input, std::size_t max_size, Bytes& output) {
        struct Free {
            void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
        };
        thread_local const std::unique_ptr<ZSTD_DCtx, Free> context(ZSTD_createDCtx());
        const std::uint64_t bytes = input.varint();
        output.clear();
        if (bytes == 0 || bytes > std::min(max_size, max_stream_bytes))
            return bytes == 0 && input.ok();
        const auto frame = input.read_bytes(input.varint());
        output.resize(bytes);
        return input.ok() && ZSTD_decompressDCtx(context.get(), output.data(), bytes, frame.data(),
                                                 frame.size()) == bytes;
    }

    Bytes first_bytes_, other_bytes_;
    const std::uint8_t *next_first_ = nullptr, *next_other_ = nullptr;
    bool ok_ = false;
};

template <class Column>
struct Columns {
    Column kinds, allocation_times, other_times, blocks, sizes, stacks, call_ticks;

    std::array<Column*, 7> all() {
        return {&kinds, &allocation_times, &other_times, &blocks, &sizes, &stacks, &call_ticks};
    }
    Column& times(Kind kind) { return returns_block(kind) ? allocation_times : other_times; }
};

}  // namespace

void encode_columns(std::span<const Event> events, std::uint32_t thread, std::uint64_t first,
                    Bytes& output) {
    thread_local Columns<ColumnWriter> columns;
    for (ColumnWriter* column : columns.all()) column->clear(max_values * events.size());
    // `number`: of the next new block.
    std::uint64_t time = first >> time_shift, first_number = 0, number = 0;
    const auto is_new = [](const Event& e) {
        return is_block_id(address_of(e)) && is_allocation(kind_of(e), address_of(e), e.size);
    };
    for (const Event& event : events)
        if (is_new(event)) {
            first_number = number = address_of(event) & number_mask;
            break;
        }
    for (const Event& event : events) {
        const Kind kind = kind_of(event);
        const std::uint64_t address = address_of(event);
        unsigned flags =
            static_cast<unsigned>(kind) | (event.call_ticks != 0 ? has_call_ticks : 0u);
        if (!is_block_id(address)) {
            flags |= raw_address;
            columns.blocks.put(address);
        } else if (is_new(event)) {
            ++number;
        } else if (const auto owner =
                       static_cast<std::uint32_t>((address & ~block_id_flag) >> block_number_bits);
                   owner == thread && (address & number_mask) < number) {
            columns.blocks.put(number - (address & number_mask));
        } else {
            flags |= other_thread;
            columns.blocks.put(owner);
            columns.blocks.put(address & number_mask);
        }
        columns.kinds.put(flags);
        const std::uint64_t t = event.time >> time_shift;
        columns.times(kind).put(t > time ? t - time : 0);
        time = std::max(time, t);
        if (has_size(kind)) columns.sizes.put(event.size);
        columns.stacks.put(event.stack);
        if (event.call_ticks != 0) columns.call_ticks.put(event.call_ticks);
    }
    thread_local StreamCompressor compressor;
    put_varint(output, first_number);
    for (const ColumnWriter* column : columns.all()) column->append_to(output, compressor);
}

bool decode_columns(std::span<const std::uint8_t> input, std::uint32_t count, std::uint32_t thread,
                    std::uint64_t first, std::vector<Event>& output) {
    thread_local Columns<ColumnReader> columns;
    VarintReader reader(input);
    std::uint64_t time = first >> time_shift, number = reader.varint();
    for (ColumnReader* column : columns.all())
        column->load(reader, max_values * std::size_t{count});
    output.clear();
    if (columns.kinds.values() != count) return false;
    output.reserve(count);
    auto& [kinds, allocation_times, other_times, blocks, sizes, stacks, call_ticks] = columns;
    for (std::uint32_t k = 0; k < count; ++k) {
        const std::uint64_t flags = kinds.varint();
        const auto kind = static_cast<Kind>(flags & kind_mask);
        time += columns.times(kind).varint();
        Event event{time << time_shift, 0, has_size(kind) ? sizes.varint() : 0,
                    static_cast<std::uint32_t>(stacks.varint()), 0};
        if ((flags & has_call_ticks) != 0)
            event.call_ticks = static_cast<std::uint32_t>(call_ticks.varint());
        std::uint64_t block = 0;
        if ((flags & raw_address) != 0) {
            block = blocks.varint() & address_mask;
        } else if ((flags & other_thread) != 0) {
            const auto owner = static_cast<std::uint32_t>(blocks.varint());
            block = block_id(owner, blocks.varint() & number_mask);
        } else if (is_allocation(kind, block_id_flag, event.size)) {
            block = block_id(thread, number++ & number_mask);
        } else {
            block = block_id(thread, (number - blocks.varint()) & number_mask);
        }
        event.address = (block & address_mask) | static_cast<std::uint64_t>(kind) << kind_shift;
        output.push_back(event);
    }
    return std::ranges::all_of(columns.all(), &ColumnReader::ok);
}

}  // namespace assay::heap
