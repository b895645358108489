// Writes pieces into files with pwritev(), with several threads that take the next write from a
// shared counter.
#include "storage/store/write_queue.hpp"

#include <limits.h>
#include <pthread.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "storage/store/helper_thread.hpp"

namespace assay::storage {
namespace {

constexpr std::size_t max_write_bytes = 4u << 20;  // a write that reaches this size is complete
// If a write's pieces are smaller than this on average, they are copied into one buffer first.
constexpr std::size_t gather_threshold = 32u << 10;

// Writes all parts, one after the other, from the file offset `offset` on. Returns 0 or errno.
int write_all(int fd, std::vector<iovec>& parts, off_t offset) {
    for (std::size_t from = 0; from < parts.size();) {
        const auto count = std::min<std::size_t>(parts.size() - from, IOV_MAX);
        const ssize_t written = pwritev(fd, &parts[from], static_cast<int>(count), offset);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return written < 0 ? errno : ENOSPC;
        offset += written;
        auto remaining = static_cast<std::size_t>(written);
        while (from < parts.size() && remaining >= parts[from].iov_len)
            remaining -= parts[from++].iov_len;
        if (remaining) {
            parts[from].iov_base = static_cast<char*>(parts[from].iov_base) + remaining;
            parts[from].iov_len -= remaining;
        }
    }
    return 0;
}

}  // namespace

void WriteQueue::add(SharedDescriptor descriptor, const Piece* pieces, std::size_t count) {
    const std::size_t file = files_.size();
    files_.push_back(std::move(descriptor));
    for (std::size_t k = 0; k < count;) {
        Write write{file, pieces + k, 0, 0};
        while (k < count && write.bytes < max_write_bytes &&
               pieces[k].begin == write.first->begin + write.bytes) {
            write.bytes += pieces[k].end - pieces[k].begin;
            ++write.count, ++k;
        }
        writes_.push_back(write);
    }
}

int WriteQueue::write(const Write& write, std::vector<char>& gathered) const {
    std::vector<iovec> parts;
    if (write.count > 1 && write.bytes / write.count < gather_threshold) {
        gathered.resize(write.bytes);
        char* to = gathered.data();
        for (std::size_t k = 0; k < write.count; ++k) {
            const Piece& piece = write.first[k];
            std::memcpy(to, piece.data, piece.end - piece.begin);
            to += piece.end - piece.begin;
        }
        parts.push_back({gathered.data(), write.bytes});
    } else {
        for (std::size_t k = 0; k < write.count; ++k) {
            const Piece& piece = write.first[k];
            parts.push_back({const_cast<char*>(piece.data), piece.end - piece.begin});
        }
    }
    return write_all(files_[write.file]->number(), parts, static_cast<off_t>(write.first->begin));
}

// After an error the rest of that file is left out; other files go on.
void WriteQueue::write_until_empty() {
    std::vector<char> gathered;
    for (std::size_t k; (k = next_.fetch_add(1)) < writes_.size();) {
        auto& error = errors_[writes_[k].file];
        if (error.load()) continue;
        if (const int failed = write(writes_[k], gathered)) error = failed;
        store_.note_alive();
    }
}

void* WriteQueue::thread_body(void* self) {
    static_cast<WriteQueue*>(self)->write_until_empty();
    return nullptr;
}

void WriteQueue::run(unsigned threads) {
    errors_ = std::vector<std::atomic<int>>(files_.size());
    std::vector<pthread_t> helpers;
    for (unsigned k = 1; k < threads && k < writes_.size(); ++k) {
        pthread_t helper;
        if (start_helper_thread(helper, thread_body, this)) helpers.push_back(helper);
    }
    write_until_empty();
    for (auto helper : helpers) pthread_join(helper, nullptr);
}

}  // namespace assay::storage
