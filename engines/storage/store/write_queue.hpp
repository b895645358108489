// One step of the drain: writes pieces of the store's data into their files, with several threads.
// Pieces that follow each other in a file become one write, which ends with the piece that takes
// it to 4 MiB. A queue is filled with add(), run once, and then asked for the errors.
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

    // Adds a file's pieces, which are sorted by offset and disjoint. They are not copied: they must
    // stay until run() has returned.
    void add(SharedDescriptor descriptor, const Piece* pieces, std::size_t count);
    // Writes all pieces with at most `threads` threads, the caller among them, and returns when all
    // have ended. After an error the rest of that file is left out; other files are written.
    void run(unsigned threads);

    // After run(): 0, or the errno of a failed write of the k-th added file.
    int error(std::size_t k) const { return errors_[k].load(); }

private:
    // `count` adjacent pieces of a file, `bytes` in all.
    struct Write {
        std::size_t file;  // index into files_
        const Piece* first;
        std::size_t count, bytes;
    };
    // Takes and writes one write after another until none is left; the body of each thread.
    void write_until_empty();
    // Returns 0 or errno. `gathered` is the thread's buffer, into which small pieces are copied.
    int write(const Write& write, std::vector<char>& gathered) const;
    static void* thread_body(void* self);  // calls write_until_empty(), for pthread_create

    const Store& store_;
    std::vector<SharedDescriptor> files_;
    std::vector<Write> writes_;
    std::vector<std::atomic<int>> errors_;  // by file
    std::atomic<std::size_t> next_{0};      // index of the next write to take
};

}  // namespace assay::storage
