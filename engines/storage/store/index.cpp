#include "storage/store/index.hpp"

#include <algorithm>
#include <iterator>

namespace assay::storage {
namespace {

constexpr std::uint64_t worth_a_run = 16;   // blocks: fewer are cheaper as extents
constexpr std::size_t most_runs = 64;       // every lookup asks each
constexpr std::size_t least_recent = 4096;  // extents before a merge is worth its pass

bool newer(std::uint64_t a, std::uint32_t rank_a, std::uint64_t b, std::uint32_t rank_b) {
    return a != b ? a > b : rank_a > rank_b;
}

}  // namespace

void Index::add(const Record& record, std::uint32_t rank, std::uint64_t position) {
    if (static_cast<Kind>(record.kind) == Kind::truncate) {
        cuts_.push_back({record.sequence, record.begin});
        return;
    }
    Run run{record.begin, record.length,   record.stride,   record.count, record.place,
            position,     record.sequence, record.sequence, rank,         1};
    if (static_cast<Kind>(record.kind) == Kind::filed) run.rank = in_file;
    if (run.count > 1 || run.rank == in_file) return add(run);
    run.stride = run.length;
    const auto found = open_.find(rank);
    if (found == open_.end()) {
        open_.emplace(rank, run);
        return;
    }
    Run& open = found->second;
    const bool follows = run.length == open.length &&
                         run.place == open.place + open.count * open.length &&
                         position == open.record + open.count;
    if (follows && run.begin > open.begin) {
        if (open.count == 1 && run.begin - open.begin >= run.length)
            open.stride = run.begin - open.begin;
        if (run.begin == open.begin + open.count * open.stride) {
            ++open.count;
            ++open.records;
            open.newest = run.newest;
            return;
        }
        if (open.count == 1) open.stride = open.length;
    }
    add(open);
    open = run;
}

void Index::add(const Run& run) {
    if (run.count < worth_a_run) return dissolve(run);
    runs_.push_back(run);
    if (runs_.size() <= most_runs) return;
    // The shortest gives way: it costs the fewest extents.
    const auto shortest = std::min_element(
        runs_.begin(), runs_.end(), [](const Run& a, const Run& b) { return a.count < b.count; });
    const Run old = *shortest;
    runs_.erase(shortest);
    dissolve(old);
}

void Index::dissolve(const Run& run) {
    for (std::uint64_t k = 0; k < run.count; ++k)
        insert({run.begin + k * run.stride, run.begin + k * run.stride + run.length,
                run.place + k * run.length, sequence(run, k), run.rank});
}

void Index::clear() {
    runs_.clear();
    open_.clear();
    sorted_.clear();
    recent_.clear();
    cuts_.clear();
}

std::uint64_t Index::sequence(const Run& run, std::uint64_t block) const {
    return run.records == 1 || run.oldest == run.newest ? run.newest : sequence_of_(run, block);
}

// Into recent_, of which it takes what is older and keeps what is newer.
void Index::insert(Extent extent) {
    if (recent_.empty() && (sorted_.empty() || sorted_.back().end <= extent.begin)) {
        sorted_.push_back(extent);
        return;
    }
    auto at = recent_.lower_bound(extent.begin);
    if (at != recent_.begin() && std::prev(at)->second.end > extent.begin) --at;
    while (extent.begin < extent.end && at != recent_.end() && at->second.begin < extent.end) {
        Extent old = at->second;
        if (newer(old.sequence, old.rank, extent.sequence, extent.rank)) {
            if (extent.begin < old.begin) {
                Extent part = extent;
                part.end = old.begin;
                recent_.emplace(part.begin, part);
            }
            if (old.end > extent.begin) {
                extent.place += old.end - extent.begin;
                extent.begin = old.end;
            }
            ++at;
            continue;
        }
        at = recent_.erase(at);
        if (old.begin < extent.begin) {
            Extent part = old;
            part.end = extent.begin;
            recent_.emplace(part.begin, part);
        }
        if (old.end > extent.end) {
            old.place += extent.end - old.begin;
            old.begin = extent.end;
            at = recent_.emplace(old.begin, old).first;
        }
    }
    if (extent.begin < extent.end) recent_.emplace(extent.begin, extent);
    if (recent_.size() > least_recent + sorted_.size() / 8) settle();
}

// Merges recent_ into sorted_: one pass over both, in which the newer of two that overlap wins.
void Index::settle() {
    std::vector<Extent> all;
    all.reserve(sorted_.size() + recent_.size());
    auto put = [&](const Extent& extent) {
        if (extent.begin < extent.end) all.push_back(extent);
    };
    std::size_t k = 0;
    Extent left{};
    bool have = false;
    auto next_old = [&] {
        have = k < sorted_.size();
        if (have) left = sorted_[k++];
    };
    next_old();
    for (auto& [begin, recent] : recent_) {
        Extent fresh = recent;
        while (have && left.end <= fresh.begin) put(left), next_old();
        while (have && left.begin < fresh.end) {
            if (newer(left.sequence, left.rank, fresh.sequence, fresh.rank)) {
                Extent part = fresh;
                part.end = std::min(fresh.end, left.begin);
                if (part.begin < part.end) put(part);
                if (left.end >= fresh.end) {
                    fresh.begin = fresh.end;
                    break;
                }
                fresh.place += left.end - fresh.begin;
                fresh.begin = left.end;
                put(left);
                next_old();
            } else {
                Extent part = left;
                part.end = std::min(left.end, fresh.begin);
                put(part);
                if (left.end > fresh.end) {
                    left.place += fresh.end - left.begin;
                    left.begin = fresh.end;
                    break;
                }
                next_old();
            }
        }
        put(fresh);
    }
    while (have) put(left), next_old();
    sorted_ = std::move(all);
    recent_.clear();
}

bool Index::cut_off(std::uint64_t sequence, std::uint64_t at) const {
    for (const auto& cut : cuts_)
        if (cut.sequence > sequence && at >= cut.size) return true;
    return false;
}

void Index::consider(Found& best, std::uint64_t at, const Extent& candidate) const {
    if (candidate.begin > at) {
        best.upto = std::min(best.upto, candidate.begin);
        return;
    }
    if (candidate.end <= at) return;
    best.upto = std::min(best.upto, candidate.end);
    if (best.data && !newer(candidate.sequence, candidate.rank, best.sequence, best.rank)) return;
    best.data = true;
    best.rank = candidate.rank;
    best.sequence = candidate.sequence;
    best.place = candidate.place + (at - candidate.begin);
}

Found Index::find(std::uint64_t at, std::uint64_t end) {
    Found best;
    best.upto = end;
    auto of_run = [&](const Run& run) {
        if (at >= run.end()) return;
        const std::uint64_t block = at <= run.begin ? 0 : (at - run.begin) / run.stride;
        for (std::uint64_t k = block; k < std::min(block + 2, run.count); ++k) {
            const std::uint64_t begin = run.begin + k * run.stride;
            if (begin >= best.upto) break;
            consider(best, at,
                     {begin, begin + run.length, run.place + k * run.length,
                      begin <= at ? sequence(run, k) : 0, run.rank});
        }
    };
    for (const auto& run : runs_) of_run(run);
    for (const auto& [rank, run] : open_) of_run(run);
    if (!sorted_.empty()) {
        auto from = std::upper_bound(sorted_.begin(), sorted_.end(), at,
                                     [](std::uint64_t a, const Extent& b) { return a < b.begin; });
        if (from != sorted_.begin()) consider(best, at, *std::prev(from));
        if (from != sorted_.end()) consider(best, at, *from);
    }
    if (!recent_.empty()) {
        auto from = recent_.upper_bound(at);
        if (from != recent_.begin()) consider(best, at, std::prev(from)->second);
        if (from != recent_.end()) consider(best, at, from->second);
    }
    for (const auto& cut : cuts_)
        if (cut.size > at) best.upto = std::min(best.upto, cut.size);
    if (best.data && cut_off(best.sequence, at)) best.data = false;
    return best;
}

std::size_t Index::bytes() const {
    return runs_.capacity() * sizeof(Run) + open_.size() * (sizeof(Run) + 48) +
           sorted_.capacity() * sizeof(Extent) + recent_.size() * (sizeof(Extent) + 48);
}

}  // namespace assay::storage
