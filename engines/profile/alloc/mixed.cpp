// What memory a program of many sizes and lifetimes takes, over what it asks for.
//
// Sizes from 16 B to 256 KiB, as likely in each power of two. Blocks of small sizes first; nine of
// ten are freed, at random; then larger ones come, for which the holes are too small. The most that
// was resident over the most that was live tells what the allocator adds; what is resident over
// what is live at the end, how much of the holes it keeps.
#include <algorithm>

#include "profile/alloc/measured.hpp"

namespace assay::alloc {
namespace {

constexpr double least = 16, small = 4096, most = 256 << 10;
constexpr int looks = 32;  // at the resident memory, in each part

struct Block {
    void* at;
    std::size_t size;
};

class Mixture {
public:
    Mixture(const Task& task, Board& board)
        : task_(task), board_(board), blocks_(task.total / 512), base_(first_look().bytes) {}

    void run() {
        fill(least, small);
        thin(0.1);
        fill(least, most);
        replace(least, most);
        const double peak = over(most_resident_, most_live_);
        thin(0.1);
        look();
        board_.add(Series::peak_over_live, peak);
        board_.add(Series::end_over_live, over(resident_now_, live_));
        board_.add(Series::operation,
                   static_cast<double>(spent_) * task_.tick_s / static_cast<double>(calls_));
        thin(0);
        look();
        board_.add(Series::retained, static_cast<double>(resident_now_));
    }

private:
    static double over(std::uint64_t a, std::uint64_t b) {
        return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b);
    }

    // New blocks until as much is live as was asked for.
    void fill(double from, double to) {
        const std::uint64_t step = task_.total / looks;
        std::uint64_t next = live_ + step;
        while (live_ < task_.total && count_ < blocks_.size()) {
            give(blocks_[count_], random_.size(from, to));
            ++count_;
            if (live_ < next) continue;
            next += step;
            look();
        }
        look();
    }

    // Each block lives on with a probability of `share`.
    void thin(double share) {
        std::size_t kept = 0;
        for (std::size_t k = 0; k < count_; ++k) {
            if (random_.share() < share) blocks_[kept++] = blocks_[k];
            else take(blocks_[k]);
        }
        count_ = kept;
    }

    // As many replacements as there are blocks, in random order; as much stays live as may be.
    void replace(double from, double to) {
        const std::size_t times = 4 * count_;
        for (std::size_t k = 0; k < times; ++k) {
            Block& one = blocks_[random_() % count_];
            take(one);
            give(one, random_.size(from, to));
            while (live_ > task_.total && count_ > 1) {
                take(blocks_[count_ - 1]);
                --count_;
            }
            if (k % (times / looks + 1) == 0) look();
        }
        look();
    }

    void give(Block& one, std::size_t size) {
        const std::uint64_t begin = ticks();
        void* at = std::malloc(size);
        spent_ += ticks() - begin;
        ++calls_;
        if (at == nullptr) refuse("malloc(%zu) gives nothing", size);
        one = {at, size};
        touch(at, size, page_);
        live_ += size;
        most_live_ = std::max(most_live_, live_);
    }

    void take(Block& one) {
        const std::uint64_t begin = ticks();
        std::free(one.at);
        spent_ += ticks() - begin;
        ++calls_;
        live_ -= one.size;
        one = {nullptr, 0};
    }

    void look() {
        check_memory(0);
        const std::uint64_t here = resident().bytes;
        resident_now_ = here > base_ ? here - base_ : 0;
        most_resident_ = std::max(most_resident_, resident_now_);
    }

    const Task& task_;
    Board& board_;
    Own<Block> blocks_;
    Random random_{7};
    std::size_t count_ = 0, page_ = page_bytes();
    std::uint64_t live_ = 0, most_live_ = 0, base_, resident_now_ = 0, most_resident_ = 0,
                  spent_ = 0, calls_ = 0;
};

}  // namespace

void run_mixed(const Task& task, Board& board) { Mixture(task, board).run(); }

}  // namespace assay::alloc
