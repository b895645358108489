// A GPU, its buffers and streams, and copies to and from it. Every wait has a time limit, and a GPU
// that does not respond is an Error that names it: a GPU that has fallen off the bus must not hang
// the measurement.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "core/clock.hpp"
#include "core/topology.hpp"
#include "node/gpu/cuda.hpp"

namespace assay::gpu {

class Gpu {
public:
    explicit Gpu(int number);  // index in the driver
    ~Gpu();
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    int number() const { return number_; }
    const std::string& name() const { return name_; }
    const std::string& pci() const { return pci_; }    // "0000:41:00.0"
    const std::string& uuid() const { return uuid_; }  // as nvidia-smi -L prints it
    std::optional<int> numa() const { return numa_; }
    std::string text() const;  // "gpu0 (NVIDIA A100, 0000:41:00.0)"
    std::size_t free_memory() const;

    void make_current() const;      // makes its context current in the calling thread
    bool try_make_current() const;  // for destructors: returns false if the GPU is lost
    void bind_thread() const;       // binds the calling thread to the GPU's NUMA node
    int memory_node() const;        // the GPU's NUMA node; NodeMemory::any if unknown
    // Throws Error unless the call succeeded. Unless memory could not be allocated, it also marks
    // the GPU as lost: a lost GPU gets no more calls, because each might block for ever.
    void check(Result, const char* call) const;
    // Marks the GPU as lost and throws Error with `what` ("does not answer: ...").
    [[noreturn]] void give_up(const std::string& what) const;

private:
    int number_;
    Device device_ = 0;
    Context context_ = nullptr;
    std::string name_, pci_, uuid_;
    std::optional<int> numa_;
    mutable std::atomic<bool> lost_ = false;
};

// Page-locked memory on the GPU's own NUMA node.
class HostBuffer {
public:
    HostBuffer(const Gpu&, std::size_t bytes);
    ~HostBuffer();
    HostBuffer(const HostBuffer&) = delete;
    HostBuffer& operator=(const HostBuffer&) = delete;
    std::byte* data() const { return static_cast<std::byte*>(memory_.data()); }

private:
    const Gpu& gpu_;
    NodeMemory memory_;
};

class DeviceBuffer {
public:
    DeviceBuffer(const Gpu&, std::size_t bytes);
    ~DeviceBuffer();
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;
    DevicePointer address(std::size_t offset) const { return pointer_ + offset; }

private:
    const Gpu& gpu_;
    DevicePointer pointer_ = 0;
};

// Streams and events that are destroyed with their owner.
class OwnedStream {
public:
    explicit OwnedStream(const Gpu&);
    ~OwnedStream();
    OwnedStream(const OwnedStream&) = delete;
    OwnedStream& operator=(const OwnedStream&) = delete;
    operator Stream() const { return stream_; }

private:
    const Gpu& gpu_;
    Stream stream_ = nullptr;
};

class OwnedEvent {
public:
    explicit OwnedEvent(const Gpu&);
    ~OwnedEvent();
    OwnedEvent(const OwnedEvent&) = delete;
    OwnedEvent& operator=(const OwnedEvent&) = delete;
    operator Event() const { return event_; }

private:
    const Gpu& gpu_;
    Event event_ = nullptr;
};

// Blocks streams until release(), so that all copies are queued before the first one starts.
class StreamBlocker {
public:
    StreamBlocker() : open_(std::make_shared<std::atomic<bool>>(false)) {}
    ~StreamBlocker() { release(); }
    StreamBlocker(const StreamBlocker&) = delete;
    StreamBlocker& operator=(const StreamBlocker&) = delete;
    void block(const Gpu&, Stream) const;
    void release() const;

private:
    // Shared with the callbacks, which may outlive this object on a lost GPU.
    std::shared_ptr<std::atomic<bool>> open_;
};

enum class CopyDirection { h2d, d2h };

// The size of a measurement: `copies` consecutive copies of `bytes` each. Each has its own buffer,
// so that every copied byte can be compared.
struct CopySize {
    std::size_t bytes = 0;
    int copies = 1;
    std::size_t total() const { return bytes * static_cast<std::size_t>(copies); }
};

// One direction of one GPU: buffers on both sides, and a stream between them.
class CopyChannel {
public:
    CopyChannel(const Gpu&, CopyDirection, const CopySize&, double limit_s);

    const Gpu& gpu() const { return gpu_; }
    CopyDirection direction() const { return direction_; }
    std::size_t bytes() const { return size_.total(); }

    void clear();  // overwrites the destination, so that data of earlier copies are gone
    void queue(const StreamBlocker&);  // queues the copies behind the blocker
    bool started() const;              // does not wait
    bool finished() const;             // does not wait
    // Seconds from the start of `first`, a channel of the same GPU, to the end of this one.
    double elapsed(const CopyChannel& first) const;

    struct Corruption {
        int copy;            // its number among the copies in a row
        std::size_t offset;  // within the copy
        std::uint64_t expected, observed;
    };
    // Returns the number of copies with wrong bytes. Sets `first` to the first wrong byte, unless
    // it is set already.
    int verify(std::optional<Corruption>& first);

private:
    bool reached(Event) const;
    void wait_for_stream() const;  // until all work queued so far is done
    std::uint64_t key(int copy) const;

    const Gpu& gpu_;
    CopyDirection direction_;
    CopySize size_;
    double limit_;
    HostBuffer host_;
    DeviceBuffer device_;
    std::optional<HostBuffer> readback_;  // for one copy, to compare what reached the GPU
    OwnedStream stream_;
    OwnedEvent begin_event_, end_event_, idle_event_;
};

}  // namespace assay::gpu
