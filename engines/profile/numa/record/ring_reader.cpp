// Maps a ring file and reads its events and stacks.
#include "profile/numa/record/ring_reader.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.hpp"

namespace assay::numa {

RingReader::RingReader(const std::string& path) {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct stat status{};
    const bool has_size =
        fd >= 0 && fstat(fd, &status) == 0 && status.st_size == static_cast<off_t>(ring_bytes);
    memory_ = has_size ? mmap(nullptr, ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                       : MAP_FAILED;
    if (fd >= 0) close(fd);
    if (memory_ == MAP_FAILED) throw Error(path + " is no ring");
    header_ = static_cast<RingHeader*>(memory_);
    events_ = reinterpret_cast<Event*>(static_cast<char*>(memory_) + ring_header_bytes);
    nodes_ = reinterpret_cast<const stack::Node*>(static_cast<char*>(memory_) + ring_nodes_offset);
    if (std::atomic_ref(header_->magic).load(std::memory_order_acquire) != ring_magic) {
        munmap(memory_, ring_bytes);
        throw Error(path + " is not ready");
    }
}

RingReader::~RingReader() { munmap(memory_, ring_bytes); }

void RingReader::drain(const std::function<void(const Event&)>& handle) {
    std::uint64_t tail = header_->tail.load(std::memory_order_relaxed);
    while (tail < header_->head.load(std::memory_order_acquire)) {
        const Event& event = events_[tail % ring_events];
        if (event.sequence.load(std::memory_order_acquire) != tail + 1) break;
        handle(event);
        header_->tail.store(++tail, std::memory_order_release);
    }
}

std::vector<std::uint64_t> RingReader::stack(std::uint32_t id) const {
    constexpr std::size_t max_depth = 4096;
    std::vector<std::uint64_t> addresses;
    while (id > stack::lost_root && id < ring_stack_nodes && addresses.size() < max_depth) {
        addresses.push_back(nodes_[id].address);
        const std::uint32_t parent = nodes_[id].parent;
        if (parent >= id) break;  // valid parents have smaller numbers than their children
        id = parent;
    }
    return addresses;
}

}  // namespace assay::numa
