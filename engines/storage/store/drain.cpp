#include "storage/store/drain.hpp"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <queue>

#include "storage/store/persist.hpp"
#include "storage/store/progress.hpp"

namespace assay::storage {
namespace {

constexpr std::size_t max_pieces = 1u << 20;
constexpr std::size_t small_batch = 32u << 20, large_batch = 1u << 30;
constexpr std::size_t max_write_bytes = 4u << 20;  // to the file system
constexpr std::size_t gather_threshold =
    32u << 10;  // pieces that are smaller on average are copied into one buffer first
constexpr std::size_t max_open_files = 256;

std::uint64_t key(const Record& record) {
    return std::uint64_t{record.generation} << 32 | record.file;
}

}  // namespace

Drain::Drain(Store& store, unsigned threads) : store_(store), threads_(std::max(1u, threads)) {}

Drain::~Drain() {
    stop();
    for (auto [file, fd] : files_)
        if (fd >= 0) close(fd);
}

void Drain::add(Batch& batch, const Record& record, std::uint32_t rank) const {
    if (static_cast<RecordKind>(record.kind) != RecordKind::data)
        return;  // the file was truncated when the record was written
    const auto& slot = store_.file(record.file);
    if (slot.generation.load() != record.generation || slot.deleted ||
        record.sequence < slot.valid_from.load())
        return;
    for (std::uint64_t k = 0; k < record.count; ++k) {
        const std::uint64_t begin = record.begin + k * record.stride;
        batch.pieces.push_back({key(record), begin, begin + record.length,
                                store_.data(rank, record.ring_offset + k * record.length),
                                record.sequence, rank});
    }
    batch.bytes += record.length * record.count;
}

Drain::Batch Drain::plan(std::size_t max_bytes) const {
    const std::uint32_t ranks = store_.ranks();
    Batch batch;
    batch.end_record.resize(ranks);
    const std::uint64_t limit = horizon(store_);
    using Next = std::pair<std::uint64_t, std::uint32_t>;  // sequence, rank
    std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
    std::vector<std::uint64_t> tail(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const auto& head = store_.head(rank);
        tail[rank] = head.tail.load(std::memory_order_acquire);
        batch.end_record[rank] = head.drained.load();
        if (batch.end_record[rank] < tail[rank])
            next.push({store_.record(rank, batch.end_record[rank]).sequence, rank});
    }
    std::size_t moved = 0;
    while (!next.empty() && next.top().first <= limit && batch.bytes < max_bytes &&
           batch.pieces.size() < max_pieces && moved < max_pieces) {
        const auto rank = next.top().second;
        next.pop();
        add(batch, store_.record(rank, batch.end_record[rank]), rank);
        ++moved;
        if (++batch.end_record[rank] < tail[rank])
            next.push({store_.record(rank, batch.end_record[rank]).sequence, rank});
    }
    return batch;
}

// Sorts the pieces by file offset; where pieces overlap, the newest stays.
void Drain::keep_newest(std::vector<Piece>& pieces) {
    auto by_offset = [](const Piece& a, const Piece& b) {
        return a.file != b.file ? a.file < b.file : a.begin < b.begin;
    };
    std::stable_sort(pieces.begin(), pieces.end(), by_offset);
    bool overlap = false;
    for (std::size_t k = 1; k < pieces.size() && !overlap; ++k)
        overlap = pieces[k].file == pieces[k - 1].file && pieces[k].begin < pieces[k - 1].end;
    if (!overlap) return;
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
        return a.sequence != b.sequence ? a.sequence < b.sequence : a.rank < b.rank;
    });
    std::map<std::pair<std::uint64_t, std::uint64_t>, Piece> kept;  // disjoint, by file and begin
    for (const auto& piece : pieces) {
        auto it = kept.lower_bound({piece.file, piece.begin});
        if (it != kept.begin() && std::prev(it)->second.file == piece.file &&
            std::prev(it)->second.end > piece.begin)
            --it;
        while (it != kept.end() && it->second.file == piece.file && it->second.begin < piece.end) {
            const Piece old = it->second;
            it = kept.erase(it);
            if (old.begin < piece.begin) {
                Piece part = old;
                part.end = piece.begin;
                kept.emplace(std::pair{part.file, part.begin}, part);
            }
            if (old.end > piece.end) {
                Piece part = old;
                part.data += piece.end - old.begin;
                part.begin = piece.end;
                it = kept.emplace(std::pair{part.file, part.begin}, part).first;
            }
        }
        kept.emplace(std::pair{piece.file, piece.begin}, piece);
    }
    pieces.clear();
    for (const auto& [ring_offset, piece] : kept) pieces.push_back(piece);
}

// Opens the file by its name; -1: it was removed or replaced; -2: it cannot be opened.
int Drain::descriptor(std::uint64_t file) {
    if (const auto it = files_.find(file); it != files_.end()) return it->second;
    if (files_.size() >= max_open_files) {
        for (auto [other, fd] : files_)
            if (fd >= 0) close(fd);
        files_.clear();
    }
    const auto& slot = store_.file(static_cast<std::uint32_t>(file));
    int fd = open(slot.path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT) return -2;
    struct stat info{};
    // The device number may change with a reboot; the inode does not.
    if (fd >= 0 && (fstat(fd, &info) || info.st_ino != slot.inode)) {
        close(fd);
        fd = -1;
    }
    files_.emplace(file, fd);
    return fd;
}

// The writes of a batch, each of adjacent pieces. The writing threads take them in turn.
struct Drain::WriteQueue {
    struct Write {
        int fd;
        std::size_t first, count, bytes;
    };
    const std::vector<Piece>& pieces;
    std::vector<Write> writes{};
    std::atomic<std::size_t> next{0};
    std::atomic<int> error{0};

    void write_gathered(const Write& write, std::vector<char>& gathered) {
        std::vector<iovec> parts;
        if (write.count > 1 && write.bytes / write.count < gather_threshold) {
            gathered.resize(write.bytes);
            char* to = gathered.data();
            for (std::size_t k = write.first; k < write.first + write.count; ++k) {
                const std::size_t bytes = pieces[k].end - pieces[k].begin;
                std::memcpy(to, pieces[k].data, bytes);
                to += bytes;
            }
            parts.push_back({gathered.data(), write.bytes});
        } else {
            for (std::size_t k = write.first; k < write.first + write.count; ++k)
                parts.push_back(
                    {const_cast<char*>(pieces[k].data), pieces[k].end - pieces[k].begin});
        }
        auto offset = static_cast<off_t>(pieces[write.first].begin);
        for (std::size_t from = 0; from < parts.size();) {
            const ssize_t written = pwritev(
                write.fd, &parts[from],
                static_cast<int>(std::min<std::size_t>(parts.size() - from, IOV_MAX)), offset);
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) {
                error = written < 0 ? errno : ENOSPC;
                return;
            }
            offset += written;
            auto remaining = static_cast<std::size_t>(written);
            while (from < parts.size() && remaining >= parts[from].iov_len)
                remaining -= parts[from++].iov_len;
            if (remaining) {
                parts[from].iov_base = static_cast<char*>(parts[from].iov_base) + remaining;
                parts[from].iov_len -= remaining;
            }
        }
    }
    void run() {
        std::vector<char> gathered;
        for (std::size_t k; (k = next.fetch_add(1)) < writes.size() && !error.load();)
            write_gathered(writes[k], gathered);
    }
};

void* Drain::write_thread(void* queue) {
    static_cast<WriteQueue*>(queue)->run();
    return nullptr;
}

int Drain::write(const std::vector<Piece>& pieces) {
    WriteQueue queue{pieces};
    for (std::size_t k = 0; k < pieces.size();) {
        const int fd = descriptor(pieces[k].file);
        if (fd == -2) return errno;
        std::size_t bytes = 0, count = 0;
        while (k + count < pieces.size() && pieces[k + count].file == pieces[k].file &&
               bytes < max_write_bytes && pieces[k + count].begin == pieces[k].begin + bytes) {
            bytes += pieces[k + count].end - pieces[k + count].begin;
            ++count;
        }
        if (fd >= 0) queue.writes.push_back({fd, k, count, bytes});
        else store_.superblock().discarded.fetch_add(bytes);
        k += count;
    }
    std::vector<pthread_t> helpers;
    for (unsigned k = 1; k < threads_ && k < queue.writes.size(); ++k) {
        pthread_t helper;
        if (pthread_create(&helper, nullptr, write_thread, &queue) == 0) helpers.push_back(helper);
    }
    queue.run();
    for (auto helper : helpers) pthread_join(helper, nullptr);
    return queue.error.load();
}

Drain::Step Drain::step(std::size_t max_bytes) {
    auto& superblock = store_.superblock();
    if (superblock.drain_failed.load()) return Step::failed;
    std::uint32_t expected = 0;
    if (!superblock.drain_lock.compare_exchange_strong(expected, 1, std::memory_order_acquire))
        return Step::busy;
    Batch batch = plan(max_bytes);
    bool any = false;
    for (std::uint32_t rank = 0; rank < store_.ranks(); ++rank)
        any |= batch.end_record[rank] != store_.head(rank).drained.load();
    int error = 0;
    if (any) {
        keep_newest(batch.pieces);
        error = write(batch.pieces);
        if (!error)
            for (std::uint32_t rank = 0; rank < store_.ranks(); ++rank) {
                auto& drained = store_.head(rank).drained;
                drained.store(batch.end_record[rank], std::memory_order_release);
                if (store_.persistent()) write_back(&drained, sizeof drained);
            }
        else superblock.drain_failed.store(static_cast<std::uint32_t>(error));
    }
    superblock.drain_lock.store(0, std::memory_order_release);
    return error ? Step::failed : any ? Step::moved : Step::idle;
}

bool Drain::finish(std::uint32_t rank, std::uint64_t end_record) {
    auto& drained = store_.head(rank).drained;
    while (drained.load(std::memory_order_acquire) < end_record) {
        const Step result = step(large_batch);
        if (result == Step::failed) return false;
        if (result != Step::moved) {
            const timespec pause{0, 20'000};
            nanosleep(&pause, nullptr);
        }
    }
    return true;
}

void Drain::start(unsigned lag_ms) {
    lag_ms_ = lag_ms;
    running_ = pthread_create(&thread_, nullptr, drain_thread, this) == 0;
}

void Drain::stop() {
    if (!running_) return;
    stop_ = true;
    store_.request_drain();
    pthread_join(thread_, nullptr);
    running_ = false;
}

void* Drain::drain_thread(void* self) {
    auto& drain = *static_cast<Drain*>(self);
    auto& drain_requests = drain.store_.superblock().drain_requests;
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 19);
    while (!drain.stop_.load()) {
        const timespec lag{drain.lag_ms_ / 1000,
                           static_cast<long>(drain.lag_ms_ % 1000) * 1'000'000};
        syscall(SYS_futex, &drain_requests, FUTEX_WAIT, drain_requests.load(), &lag, nullptr, 0);
        while (!drain.stop_.load() && drain.step(small_batch) == Step::moved) {
        }
    }
    return nullptr;
}

}  // namespace assay::storage
