// Reads the ring of a profiled process (hooks/ring.hpp), also after the process has ended.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "profile/numa/hooks/ring.hpp"

namespace assay::numa {

class RingReader {
public:
    // Maps the ring file. Throws Error if it is no ring or not ready.
    explicit RingReader(const std::string& path);
    ~RingReader();
    RingReader(const RingReader&) = delete;
    RingReader& operator=(const RingReader&) = delete;

    std::uint32_t pid() const { return static_cast<std::uint32_t>(header_->pid); }
    std::uint32_t parent() const { return static_cast<std::uint32_t>(header_->parent); }
    std::uint64_t lost() const { return header_->lost.load(); }
    void acknowledge() { header_->acknowledged.store(1); }
    void mark_recorder_gone() { header_->recorder_gone.store(1); }

    void drain(const std::function<void(const Event&)>& handle);
    // The addresses of a stack, innermost first; empty if no stack has the number.
    std::vector<std::uint64_t> stack(std::uint32_t id) const;

private:
    void* memory_;
    RingHeader* header_;
    Event* events_;
    const stack::Node* nodes_;
};

}  // namespace assay::numa
