#include "profile/trace/format.hpp"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <memory>

namespace assay::heap {
namespace {

constexpr std::uint8_t kind_bits = 15, timed = 16, foreign = 32, plain = 64;  // plain: an address
constexpr std::uint64_t number_mask = (std::uint64_t{1} << number_bits) - 1;
constexpr std::size_t longest = 10;                                    // bytes of a varint
constexpr std::size_t most_values = 2;                                 // of an event in one column
constexpr std::size_t most_bytes = 256u << 20;                         // of a stream
constexpr int level = 9, longest_least_match = 7, least_hash_log = 6;  // as zstd bounds them

// Streams of bytes, each in the shorter of two ways: with all repetitions that can be found, or
// with hardly any, where they are chance, and it is better said how often each byte is there.
class Press {
public:
    Press() : thorough_(ZSTD_createCCtx()), plain_(ZSTD_createCCtx()) {
        ZSTD_CCtx_setParameter(thorough_.get(), ZSTD_c_compressionLevel, level);
        ZSTD_CCtx_setParameter(plain_.get(), ZSTD_c_compressionLevel, 1);
        ZSTD_CCtx_setParameter(plain_.get(), ZSTD_c_strategy, ZSTD_fast);
        ZSTD_CCtx_setParameter(plain_.get(), ZSTD_c_minMatch, longest_least_match);
        ZSTD_CCtx_setParameter(plain_.get(), ZSTD_c_hashLog, least_hash_log);
    }
    void append(std::span<const std::uint8_t> bytes, Bytes& to) {
        put_varint(to, bytes.size());
        if (bytes.empty()) return;
        const std::size_t most = ZSTD_compressBound(bytes.size());
        room_.resize(2 * most);
        const std::size_t found = ZSTD_compress2(thorough_.get(), room_.data(), most, bytes.data(),
                                                 bytes.size()),
                          counted = ZSTD_compress2(plain_.get(), room_.data() + most, most,
                                                   bytes.data(), bytes.size());
        const std::span<const std::uint8_t> pressed = found <= counted
                                                          ? std::span(room_.data(), found)
                                                          : std::span(room_.data() + most, counted);
        put_varint(to, pressed.size());
        to.insert(to.end(), pressed.begin(), pressed.end());
    }

private:
    struct Free {
        void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
    };
    std::unique_ptr<ZSTD_CCtx, Free> thorough_, plain_;
    Bytes room_;
};

// A column being filled: room for the worst case is there from the start.
class Column {
public:
    void clear(std::size_t values) {
        if (heads_.size() < values) {
            heads_.resize(values);
            tails_.resize(values * (longest - 1));
        }
        head_ = heads_.data();
        tail_ = tails_.data();
    }
    void put(std::uint64_t value) {
        std::uint8_t** at = &head_;
        while (value >= 128) {
            *(*at)++ = static_cast<std::uint8_t>(value | 128);
            value >>= 7;
            at = &tail_;
        }
        *(*at)++ = static_cast<std::uint8_t>(value);
    }
    void append_to(Bytes& to, Press& press) const {
        press.append({heads_.data(), static_cast<const std::uint8_t*>(head_)}, to);
        press.append({tails_.data(), static_cast<const std::uint8_t*>(tail_)}, to);
    }

private:
    Bytes heads_, tails_;
    std::uint8_t *head_ = nullptr, *tail_ = nullptr;
};

// A column being read; not ok where it is no such thing or has ended.
class ReadColumn {
public:
    void take(Reader& from, std::size_t values) {
        ok_ = unpress(from, values, heads_) && unpress(from, values * (longest - 1), tails_);
        if (!ok_) heads_.clear();
        head_ = heads_.data();
        tail_ = tails_.data();
    }
    std::size_t values() const { return heads_.size(); }
    std::uint64_t varint() {
        if (head_ == heads_.data() + heads_.size()) return ok_ = false;
        std::uint64_t value = *head_ & 127;
        bool more = *head_++ >= 128;
        for (int shift = 7; more && shift < 64; shift += 7) {
            if (tail_ == tails_.data() + tails_.size()) return ok_ = false;
            value |= static_cast<std::uint64_t>(*tail_ & 127) << shift;
            more = *tail_++ >= 128;
        }
        return value;
    }
    bool ok() const { return ok_; }

private:
    static bool unpress(Reader& from, std::size_t most, Bytes& into) {
        struct Free {
            void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
        };
        thread_local const std::unique_ptr<ZSTD_DCtx, Free> context(ZSTD_createDCtx());
        const std::uint64_t bytes = from.varint();
        into.clear();
        if (bytes == 0 || bytes > std::min(most, most_bytes)) return bytes == 0 && from.ok();
        const auto pressed = from.take(from.varint());
        into.resize(bytes);
        return from.ok() && ZSTD_decompressDCtx(context.get(), into.data(), bytes, pressed.data(),
                                                pressed.size()) == bytes;
    }

    Bytes heads_, tails_;
    const std::uint8_t *head_ = nullptr, *tail_ = nullptr;
    bool ok_ = false;
};

template <class OneColumn>
struct Columns {
    OneColumn kinds, given, others, blocks, sizes, stacks, costs;  // given, others: times

    std::array<OneColumn*, 7> all() {
        return {&kinds, &given, &others, &blocks, &sizes, &stacks, &costs};
    }
    OneColumn& times(Kind kind) { return gives_block(kind) ? given : others; }
};

}  // namespace

void encode_events(std::span<const Event> events, std::uint32_t thread, std::uint64_t first,
                   Bytes& to) {
    thread_local Columns<Column> columns;
    for (Column* column : columns.all()) column->clear(most_values * events.size());
    std::uint64_t time = first >> time_shift, next = 0,
                  number = 0;  // number: of the next new block
    const auto is_new = [](const Event& e) {
        return is_named(address_of(e)) && gives(kind_of(e), address_of(e), e.size);
    };
    for (const Event& event : events)
        if (is_new(event)) {
            next = number = address_of(event) & number_mask;
            break;
        }
    for (const Event& event : events) {
        const Kind kind = kind_of(event);
        const std::uint64_t at = address_of(event);
        unsigned flags = static_cast<unsigned>(kind) | (event.cost != 0 ? timed : 0u);
        if (!is_named(at)) {
            flags |= plain;
            columns.blocks.put(at);
        } else if (is_new(event)) {
            ++number;
        } else if (const auto owner = static_cast<std::uint32_t>((at & ~named) >> number_bits);
                   owner == thread && (at & number_mask) < number) {
            columns.blocks.put(number - (at & number_mask));
        } else {
            flags |= foreign;
            columns.blocks.put(owner);
            columns.blocks.put(at & number_mask);
        }
        columns.kinds.put(flags);
        const std::uint64_t t = event.time >> time_shift;
        columns.times(kind).put(t > time ? t - time : 0);
        time = std::max(time, t);
        if (has_size(kind)) columns.sizes.put(event.size);
        columns.stacks.put(event.stack);
        if (event.cost != 0) columns.costs.put(event.cost);
    }
    thread_local Press press;
    put_varint(to, next);
    for (const Column* column : columns.all()) column->append_to(to, press);
}

bool decode_events(std::span<const std::uint8_t> from, std::uint32_t count, std::uint32_t thread,
                   std::uint64_t first, std::vector<Event>& into) {
    thread_local Columns<ReadColumn> columns;
    Reader all(from);
    std::uint64_t time = first >> time_shift, number = all.varint();
    for (ReadColumn* column : columns.all()) column->take(all, most_values * std::size_t{count});
    into.clear();
    if (columns.kinds.values() != count) return false;
    into.reserve(count);
    auto& [kinds, given, others, blocks, sizes, stacks, costs] = columns;
    for (std::uint32_t k = 0; k < count; ++k) {
        const std::uint64_t flags = kinds.varint();
        const auto kind = static_cast<Kind>(flags & kind_bits);
        time += columns.times(kind).varint();
        Event event{time << time_shift, 0, has_size(kind) ? sizes.varint() : 0,
                    static_cast<std::uint32_t>(stacks.varint()), 0};
        if ((flags & timed) != 0) event.cost = static_cast<std::uint32_t>(costs.varint());
        std::uint64_t block = 0;
        if ((flags & plain) != 0) {
            block = blocks.varint() & address_mask;
        } else if ((flags & foreign) != 0) {
            const auto owner = static_cast<std::uint32_t>(blocks.varint());
            block = name_block(owner, blocks.varint() & number_mask);
        } else if (gives(kind, named, event.size)) {
            block = name_block(thread, number++ & number_mask);
        } else {
            block = name_block(thread, (number - blocks.varint()) & number_mask);
        }
        event.address = (block & address_mask) | static_cast<std::uint64_t>(kind) << kind_shift;
        into.push_back(event);
    }
    return std::ranges::all_of(columns.all(), &ReadColumn::ok);
}

}  // namespace assay::heap
