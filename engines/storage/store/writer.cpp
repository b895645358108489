#include "storage/store/writer.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "storage/store/persist.hpp"

namespace assay::storage {
namespace {

constexpr std::uint64_t step = 8u << 20;     // bytes made real at a time
constexpr std::uint64_t ahead = 128u << 20;  // bytes that are kept real ahead of the writer
constexpr std::uint64_t nap_ns = 50'000;     // of a writer that waits for the drain
constexpr std::uint64_t patience_ns =
    120'000'000'000;  // a drain that moves nothing for so long has failed

void nap(std::uint64_t ns) {
    const timespec time{static_cast<time_t>(ns / 1'000'000'000),
                        static_cast<long>(ns % 1'000'000'000)};
    nanosleep(&time, nullptr);
}

}  // namespace

Writer::Writer(Store& store, std::uint32_t rank)
    : store_(store), head_(store.head(rank)), rank_(rank) {
    mapped_.resize(store.ranks());
    running_ = pthread_create(&thread_, nullptr, warmer, this) == 0;
}

Writer::~Writer() {
    stop_ = true;
    wanted_.fetch_add(1);
    if (running_) pthread_join(thread_, nullptr);
}

void Writer::warm(double seconds) {
    const std::uint64_t until = store_.now() + static_cast<std::uint64_t>(seconds * 1e9);
    while (store_.now() < until && head_.real.load() < head_.ring.load() &&
           make_real(head_.real.load() + 1)) {
    }
}

void Writer::map_others(double seconds) {
    const std::uint64_t until = store_.now() + static_cast<std::uint64_t>(seconds * 1e9);
    while (store_.now() < until && map_another()) {
    }
    maps_ = true;
}

// A step of the first rank that has more than is mapped; false: there is none.
bool Writer::map_another() {
    for (std::uint32_t rank = 0; rank < store_.ranks(); ++rank) {
        const std::uint64_t real = store_.head(rank).real.load();
        if (rank == rank_ || mapped_[rank] >= real) continue;
        const std::uint64_t bytes = std::min(step, real - mapped_[rank]);
        store_.map_ahead(store_.shape().data(rank) + mapped_[rank], bytes);
        mapped_[rank] += bytes;
        return true;
    }
    return false;
}

void* Writer::warmer(void* self) {
    auto& writer = *static_cast<Writer*>(self);
    while (!writer.stop_.load()) {
        const std::uint64_t real = writer.head_.real.load();
        // Before the first write nothing is known of how much will be needed.
        const std::uint64_t wanted = writer.wanted_.load();
        if (wanted && real < std::min(wanted + ahead, writer.head_.ring.load())) {
            if (!writer.make_real(real + 1)) nap(1'000'000);
        } else if (!writer.maps_.load() || !writer.map_another()) {
            nap(1'000'000);
        }
    }
    return nullptr;
}

bool Writer::make_real(std::uint64_t upto) {
    pthread_mutex_lock(&growing_);
    while (head_.real.load() < upto && !full_.load()) {
        const std::uint64_t from = head_.real.load(),
                            bytes = std::min(step, head_.ring.load() - from);
        if (!bytes) break;
        if (store_.populate(store_.shape().data(rank_) + from, bytes)) {
            // The device is full: the ring ends here. All that is in it lies in its first lap, so
            // no position moves.
            full_ = true;
            if (from) head_.ring = from;
            else error_ = ENOSPC;
        } else {
            head_.real = from + bytes;
        }
    }
    pthread_mutex_unlock(&growing_);
    return head_.real.load() >= upto;
}

std::size_t Writer::most_bytes() const {
    return std::max<std::size_t>(page, head_.ring.load() / 4);
}

bool Writer::give_way() {
    const std::uint64_t first = head_.first_record.load(std::memory_order_relaxed);
    const std::uint64_t drained = head_.drained.load(std::memory_order_acquire);
    if (first == drained) return false;
    if (may_go_ && first >= cleared_) {
        cleared_ = may_go_(first, drained);
        if (first >= cleared_) {
            error_ = EIO;
            refused_ = true;
            return false;
        }
    }
    const Record& oldest = store_.record(rank_, first);
    if (static_cast<Kind>(oldest.kind) == Kind::data)
        head_.first_byte.store(oldest.place + oldest.length * oldest.count,
                               std::memory_order_release);
    head_.first_record.store(first + 1, std::memory_order_release);
    std::atomic_thread_fence(
        std::memory_order_seq_cst);  // readers look at first_byte after their copy
    return true;
}

bool Writer::wait_for_drain() {
    auto& super = store_.super();
    const std::uint64_t before = head_.drained.load();
    const std::uint64_t until = store_.now() + patience_ns;
    while (head_.drained.load() == before) {
        if (const auto failed = super.drain_failed.load()) {
            error_ = static_cast<int>(failed);
            return false;
        }
        store_.hurry();
        if (store_.now() > until) {
            error_ = ETIMEDOUT;
            return false;
        }
        nap(nap_ns);
    }
    return true;
}

char* Writer::reserve(std::size_t bytes, std::size_t records, std::uint64_t& place) {
    for (;;) {
        const std::uint64_t ring = head_.ring.load();
        std::uint64_t from = next_;
        if (from % ring + bytes > ring) from += ring - from % ring;
        const bool space = from + bytes - head_.first_byte.load(std::memory_order_relaxed) <= ring;
        const bool slots = head_.tail.load(std::memory_order_relaxed) + records -
                               head_.first_record.load(std::memory_order_relaxed) <=
                           store_.shape().record_slots - spare_records();
        if (space && slots) {
            wanted_.store(from + bytes + 1, std::memory_order_relaxed);
            const std::uint64_t real = head_.real.load(std::memory_order_relaxed);
            if (real < ring && from + bytes > real && !make_real(std::min(from + bytes, ring))) {
                if (error_) return nullptr;
                if (head_.ring.load() != ring) continue;  // smaller than thought: look again
            }
            next_ = from;
            place = from;
            return store_.data(rank_, from);
        }
        if (bytes > ring) {
            error_ = ENOSPC;
            return nullptr;
        }
        // With nothing left in it the ring can begin anew wherever that helps.
        if (!give_way()) {
            if (refused_) return nullptr;
            if (head_.first_record.load() == head_.tail.load()) head_.first_byte.store(from);
            else if (!wait_for_drain()) return nullptr;
        }
    }
}

void Writer::begin() { head_.pending.store(store_.now(), std::memory_order_seq_cst); }

void Writer::publish(Record* records, std::size_t count, std::uint64_t place, std::size_t bytes) {
    const bool durable = store_.persistent();
    if (durable && bytes) {
        write_back(store_.data(rank_, place), bytes);
        persist_fence();
    }
    const std::uint64_t sequence = store_.now(), tail = head_.tail.load(std::memory_order_relaxed);
    for (std::size_t k = 0; k < count; ++k) {
        if (!records[k].sequence) records[k].sequence = sequence;
        records[k].place += place;
        records[k].check = check_of(records[k]);
        Record& slot = store_.record(rank_, tail + k);
        slot = records[k];
        if (durable) write_back(&slot, sizeof slot);
    }
    next_ = place + bytes;
    if (durable) persist_fence();
    head_.tail.store(tail + count, std::memory_order_release);
    if (durable) {
        write_back(&head_.tail, sizeof head_.tail);
        persist_fence();
    }
    head_.pending.store(0, std::memory_order_release);
}

}  // namespace assay::storage
