// The operations on one item, a file or a directory, through POSIX and through MPI-IO.
//
// A function returns false if the item does not exist, or is not as it was made. Other errors end
// the job with a message that names rank, path and reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/content/content.hpp"
#include "storage/ranks/ranks.hpp"

namespace assay::storage {

// The paths of the items. `owner`: the rank that makes them; `number`: counts the items of a rank.
// `unique`: each rank has a directory of its own, else all share one.
struct Tree {
    std::string root;
    bool unique = false;

    std::string folder(int owner) const;
    std::string file(int owner, std::uint64_t number) const;
    std::string renamed(int owner, std::uint64_t number) const;
    std::string directory(int owner, std::uint64_t number) const;
};

class Items {
public:
    // `bytes`: size of each file; `sync`: files are synced after they were written.
    Items(Ranks& ranks, std::size_t bytes, bool sync) : ranks_(ranks), sync_(sync), data_(bytes) {}

    void create(const std::string& path, const Content& content, std::uint64_t number);
    bool stat_file(const std::string& path) const;
    bool open(const std::string& path, const Content& content, std::uint64_t number);
    bool rename(const std::string& from, const std::string& to) const;
    bool unlink(const std::string& path) const;
    void make_directory(const std::string& path) const;
    bool stat_directory(const std::string& path) const;
    bool remove_directory(const std::string& path) const;
    // The number of entries, or fewer if `goes_on` returns false before the end.
    std::uint64_t list(const std::string& path, const std::function<bool()>& continues) const;

    void create_mpi(const std::string& path, const Content& content, std::uint64_t number);
    bool open_mpi(const std::string& path, const Content& content, std::uint64_t number);
    bool delete_mpi(const std::string& path) const;

private:
    // Ends the job if a call has failed.
    void require(std::int64_t result, const char* action, const std::string& path) const;
    // Returns false if a call has failed because the item does not exist. Ends the job if it has
    // failed for another reason.
    bool exists(int result, const char* action, const std::string& path) const;
    bool exists_mpi(int result, const char* action, const std::string& path) const;
    bool is_as_written(std::size_t bytes, const Content& content, std::uint64_t number);
    void set_data(const Content& content, std::uint64_t number);

    Ranks& ranks_;
    bool sync_;
    std::vector<std::byte> data_;  // of one file
};

}  // namespace assay::storage
