#include "storage/accelerator/settlement.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "storage/accelerator/job.hpp"

namespace assay::storage {
namespace {

constexpr std::uint64_t nap_ns = 50'000;
constexpr std::uint64_t patience_ns = 120'000'000'000;

// Until it is so; false: it is not, for too long.
template <class Condition>
bool eventually(const Store& store, Condition condition) {
    for (const std::uint64_t until = store.now() + patience_ns; !condition();) {
        if (store.now() > until) return false;
        const timespec moment{0, nap_ns};
        nanosleep(&moment, nullptr);
    }
    return true;
}

// The file that the slot means, to be written; -1: it is another one now, or none.
int opened(const FileSlot& slot) {
    const int fd = open(slot.path, O_WRONLY | O_CLOEXEC);
    struct stat about{};
    if (fd >= 0 && (fstat(fd, &about) || about.st_ino != slot.inode)) {
        close(fd);
        return -1;
    }
    return fd;
}

bool write_whole(int fd, const char* data, std::uint64_t bytes, std::uint64_t at) {
    while (bytes) {
        const ssize_t got = pwrite(fd, data, bytes, static_cast<off_t>(at));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        data += got, at += static_cast<std::uint64_t>(got),
            bytes -= static_cast<std::uint64_t>(got);
    }
    return true;
}

}  // namespace

// Whoever settles after this rank has begun waits until it has ended, its words kept.
struct Settlement::OthersWait {
    explicit OthersWait(Job& job) : word(job.store().head(job.local()).settling) {}
    ~OthersWait() { word.store(0, std::memory_order_seq_cst); }
    std::atomic<std::uint64_t>& word;
};

std::vector<Settlement::Piece> Settlement::won(std::uint64_t from, std::uint64_t upto,
                                               bool& contested) {
    const Store& store = job_.store();
    auto& knowledge = job_.knowledge();
    std::vector<Piece> pieces;
    for (std::uint64_t k = from; k < upto; ++k) {
        const Record& record = store.record(job_.local(), k);
        const auto& slot = store.file(record.file);
        if (static_cast<Kind>(record.kind) != Kind::data || slot.generation != record.generation ||
            slot.gone || !knowledge.shared(record.file))
            continue;
        Index& others = knowledge.others(record.file);
        Index& all = knowledge.index(record.file);
        if (!others.runs() && !others.extents()) continue;
        for (std::uint64_t block = 0; block < record.count; ++block) {
            const std::uint64_t begin = record.begin + block * record.stride,
                                end = begin + record.length;
            for (std::uint64_t at = begin; at < end;) {
                const Found other = others.find(at, end);
                contested |= other.data;
                if (!other.data || other.sequence > record.sequence) {
                    at = other.upto;
                    continue;
                }
                const Found newest = all.find(at, other.upto);
                const std::uint64_t place = record.place + block * record.length + (at - begin);
                if (newest.data && newest.rank == job_.local() && newest.place == place)
                    pieces.push_back(
                        {record.file, record.generation, at, newest.upto, place, record.sequence});
                at = newest.upto;
            }
        }
    }
    return pieces;
}

bool Settlement::contested() {
    bool found = false;
    if (!job_.knowledge().any_shared()) return false;
    const auto& head = job_.store().head(job_.local());
    if (!job_.knowledge().ask()) return true;
    job_.knowledge().look_here(true);
    won(std::max(done_, head.first_record.load()), head.tail.load(), found);
    return found;
}

// All that is older than `sequence` has been told.
bool Settlement::wait_until_known(std::uint64_t sequence) {
    auto& knowledge = job_.knowledge();
    bool reached = true;
    return eventually(job_.store(),
                      [&] {
                          reached = knowledge.ask();
                          return !reached || (knowledge.far_enough(&Progress::horizon, sequence) &&
                                              horizon(job_.store()) > sequence);
                      }) &&
           reached;
}

// And is in the file system.
bool Settlement::wait_until_drained(std::uint64_t sequence) {
    auto& knowledge = job_.knowledge();
    bool possible = true;
    return eventually(job_.store(),
                      [&] {
                          job_.store().hurry();
                          const Progress here = progress(job_.store());
                          possible = knowledge.ask(true) && !here.failed &&
                                     !knowledge.drain_failed_elsewhere();
                          return !possible || (knowledge.far_enough(&Progress::drained, sequence) &&
                                               here.drained > sequence);
                      }) &&
           possible;
}

bool Settlement::put_right(const std::vector<Piece>& pieces) {
    const Store& store = job_.store();
    int fd = -1;
    bool good = true;
    for (std::size_t k = 0; k < pieces.size() && good; ++k) {
        const auto& piece = pieces[k];
        if (!k || piece.file != pieces[k - 1].file) {
            if (fd >= 0) close(fd);
            fd = opened(store.file(piece.file));
        }
        if (fd >= 0)
            good = write_whole(fd, store.data(job_.local(), piece.place), piece.end - piece.begin,
                               piece.begin);
    }
    if (fd >= 0) close(fd);
    return good;
}

bool Settlement::settle(std::uint64_t from, std::uint64_t upto, std::vector<Piece>& rewritten) {
    auto& head = job_.store().head(job_.local());
    auto& knowledge = job_.knowledge();
    std::uint64_t newest = 0, oldest = ~0ull;
    for (std::uint64_t k = from; k < upto; ++k) {
        newest = std::max(newest, job_.store().record(job_.local(), k).sequence);
        oldest = std::min(oldest, job_.store().record(job_.local(), k).sequence);
    }
    bool contested = false;
    if (!wait_until_known(newest)) return false;
    knowledge.look_here(true);
    if (won(from, upto, contested).empty()) return true;
    if (!wait_until_drained(newest)) return false;
    // From here on others that settle wait for this one; what they wrote meanwhile is theirs to put
    // right.
    head.settling.store(oldest, std::memory_order_seq_cst);
    if (!knowledge.ask()) return false;
    knowledge.look_here(true);
    rewritten = won(from, upto, contested);
    return put_right(rewritten);
}

bool Settlement::settle(std::uint64_t upto) {
    if (!job_.knowledge().any_shared()) return true;
    const OthersWait until_done(job_);
    std::vector<Piece> rewritten;
    if (!settle(std::max(done_, job_.store().head(job_.local()).first_record.load()), upto,
                rewritten))
        return false;
    done_ = std::max(done_, upto);
    return true;
}

std::uint64_t Settlement::make_room(std::uint64_t first, std::uint64_t drained) {
    if (!job_.knowledge().any_shared()) return drained;
    // Fewer at a time where their pieces are more than words can be kept of.
    for (std::uint64_t upto = drained; upto > first; upto = first + (upto - first) / 2) {
        const OthersWait until_done(job_);
        std::vector<Piece> rewritten;
        if (!settle(first, upto, rewritten)) return first;
        if (keep_word(rewritten, first, upto)) return upto;
    }
    return first;
}

// Of what was rewritten now, and of what was before and is still in question; false: it would be
// too many words.
bool Settlement::keep_word(const std::vector<Piece>& pieces, std::uint64_t first,
                           std::uint64_t drained) {
    const Store& store = job_.store();
    std::vector<Record> words;
    for (const auto& piece : pieces) {
        const std::uint64_t length = piece.end - piece.begin;
        if (!words.empty()) {
            Record& last = words.back();
            const bool alike = last.file == piece.file && last.sequence == piece.sequence &&
                               last.length == length && piece.begin > last.begin;
            if (alike && last.count == 1) {
                last.stride = piece.begin - last.begin, last.count = 2;
                continue;
            }
            if (alike && piece.begin == last.begin + last.count * last.stride) {
                ++last.count;
                continue;
            }
        }
        Record word{};
        word.sequence = piece.sequence;
        word.file = piece.file;
        word.generation = piece.generation;
        word.begin = piece.begin;
        word.length = length;
        word.count = 1;
        word.kind = static_cast<std::uint64_t>(Kind::filed);
        words.push_back(word);
    }
    const std::uint64_t here = oldest_but_of(store, job_.local());
    for (std::uint64_t k = first; k < drained; ++k) {
        Record old = store.record(job_.local(), k);
        const bool settled =
            here > old.sequence && job_.knowledge().far_enough(&Progress::oldest, old.sequence);
        if (static_cast<Kind>(old.kind) != Kind::filed || settled) continue;
        old.place = 0;
        words.push_back(old);
    }
    if (words.size() > job_.writer().spare_records()) return false;
    if (!words.empty()) job_.writer().publish(words.data(), words.size());
    return true;
}

}  // namespace assay::storage
