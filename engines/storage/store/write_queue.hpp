// Writes pieces into files, several at a time. Adjacent pieces become one write.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "storage/store/batch.hpp"
#include "storage/store/file_handles.hpp"

namespace assay::storage {

class WriteQueue {
public:
    explicit WriteQueue(const Store& store) : store_(store) {}

    // Adds a file's pieces, which are sorted by offset and disjoint.
    void add(SharedDescriptor descriptor, const Piece* pieces, std::size_t count);
    // Writes all with `threads` threads. The errors are in `error(k)` then.
    void run(unsigned threads);

    std::size_t files() const { return files_.size(); }
    // errno of the first write of the k-th added file that failed; 0: none failed.
    int error(std::size_t k) const { return errors_[k].load(); }

private:
    struct Write {
        std::size_t file;
        const Piece* first;
        std::size_t count, bytes;
    };
    void work();
    int write(const Write& write, std::vector<char>& gathered) const;
    static void* thread(void* self);

    const Store& store_;
    std::vector<SharedDescriptor> files_;
    std::vector<Write> writes_;
    std::vector<std::atomic<int>> errors_;
    std::atomic<std::size_t> next_{0};
};

}  // namespace assay::storage
