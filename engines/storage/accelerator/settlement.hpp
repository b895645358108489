// What several ranks have written to the same bytes, put right in the file system.
//
// Nodes drain each for itself, so of two nodes' writes to a byte the older may arrive last. Whoever
// wrote the byte last writes it again: when the file is to be complete, and before his data give
// way in the ring. By then nothing older can appear, and all that is older is in the file system on
// every node. For readers that have not heard of what gives way, a record stays that says who was
// right (Kind::filed).
#pragma once

#include <cstdint>
#include <vector>

namespace assay::storage {

class Job;

class Settlement {
public:
    explicit Settlement(Job& job) : job_(job) {}

    // Of this rank's records before `upto`, which are in the file system: none is hidden there by
    // an older one then. False: another node does not answer, or the file cannot be written.
    bool settle(std::uint64_t upto);
    // Whether another rank has written any byte of this rank's records that are not settled.
    bool contested();
    // Before records give way: how far they may (Writer::MayGo).
    std::uint64_t make_room(std::uint64_t first, std::uint64_t drained);

private:
    struct Piece {
        std::uint32_t file, generation;
        std::uint64_t begin, end, place, sequence;
    };
    struct OthersWait;
    // What of [from, upto) of the records this rank wrote last, after others did.
    std::vector<Piece> won(std::uint64_t from, std::uint64_t upto, bool& contested);
    bool wait_until_known(std::uint64_t sequence);
    bool wait_until_drained(std::uint64_t sequence);
    bool put_right(const std::vector<Piece>& pieces);
    bool settle(std::uint64_t from, std::uint64_t upto, std::vector<Piece>& rewritten);
    bool keep_word(const std::vector<Piece>& pieces, std::uint64_t first, std::uint64_t drained);

    Job& job_;
    std::uint64_t done_ = 0;  // this rank's records before are settled
};

}  // namespace assay::storage
