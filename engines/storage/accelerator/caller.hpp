// This process's end of a connection to another node's service.
//
// What a rank writes in turn lies in turn in its ring, and positions of a ring are never used
// twice: so who reads in the order of writing is given what comes next before asking, and bytes
// that came early are right for ever.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "storage/accelerator/service.hpp"

namespace assay::storage {

// Bytes of a rank's data ring that are wanted here.
struct Wanted {
    enum Fate { open, had, gone, failed };  // gone: they have given way, the file system has them
    int world_rank;
    std::uint64_t place, bytes;
    char* to;
    std::uint64_t file_begin;  // where they lie in the file
    Fate fate = open;
};

// A part of a node's work: which of its ranks, and what.
struct Asked {
    std::uint32_t rank;
    Wanted* wanted;
};

class Caller {
public:
    // Null: nobody who knows the key is there. `host` in network order.
    static std::unique_ptr<Caller> reach(std::uint32_t host, std::uint32_t port, const Key& key);
    ~Caller();
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;

    // Each has a fate then; false: the connection is broken.
    bool fetch(std::vector<Asked>& asked);
    // What the node's ranks have published since this was last asked: asked here, so that several
    // nodes are at it at a time,
    bool ask_for_news(std::uint64_t now, bool hurry);
    // and taken here. `tell` is called for each record.
    using Tell =
        std::function<void(std::uint32_t rank, std::uint64_t position, const Record& record)>;
    bool take_news(std::uint64_t now, const Tell& tell, News& news);
    bool pointer(std::uint32_t slot, std::int64_t amount, bool set, std::uint64_t& before);

private:
    explicit Caller(int fd) : fd_(fd) {}
    bool one(std::uint32_t rank, Wanted& wanted);
    bool many(std::vector<Asked>& asked);
    bool ask_ahead(std::uint32_t rank, std::uint64_t place, std::uint64_t bytes);
    bool take_early();
    std::uint64_t from_early(std::uint32_t rank, std::uint64_t place, std::uint64_t bytes,
                             char* to) const;
    bool answer(char* to, std::uint64_t bytes, Wanted::Fate& fate);

    int fd_;
    std::uint32_t last_rank_ = ~0u;
    std::uint64_t last_end_ = 0;
    struct {
        std::uint32_t rank = 0;
        std::uint64_t place = 0;
        std::vector<char> bytes;
    } early_;
    Request ahead_{};
    bool waiting_ = false;  // for the answer to ahead_
};

}  // namespace assay::storage
