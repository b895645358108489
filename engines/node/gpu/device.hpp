// A GPU and what is copied to and from it. Every wait for it has a limit, and whatever it does not
// answer to is an Error that names it: a GPU that has fallen off the bus must not hang an
// acceptance.
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
    explicit Gpu(int number);  // as the driver counts them
    ~Gpu();
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    int number() const { return number_; }
    const std::string& name() const { return name_; }
    const std::string& pci() const { return pci_; }  // "0000:41:00.0"
    std::optional<int> numa() const { return numa_; }
    std::string text() const;  // "gpu0 (NVIDIA A100, 0000:41:00.0)"
    std::size_t free_memory() const;

    void enter() const;       // makes it the calling thread's
    bool try_enter() const;   // for destructors: false for a GPU that is lost
    void bind() const;        // the calling thread, to the GPU's NUMA node
    int memory_node() const;  // for NodeMemory
    // Throws Error unless the call succeeded. Then the GPU is lost: nothing more is asked of it,
    // since every call might wait for ever.
    void check(Result, const char* call) const;
    [[noreturn]] void give_up(const std::string& what) const;

private:
    int number_;
    Device device_ = 0;
    Context context_ = nullptr;
    std::string name_, pci_;
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
    DevicePointer at(std::size_t offset) const { return pointer_ + offset; }

private:
    const Gpu& gpu_;
    DevicePointer pointer_ = 0;
};

// A stream, and a moment on it: given back with their owner.
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

// Holds back what is queued behind it on any number of streams, until all is queued.
class Gate {
public:
    Gate() : open_(std::make_shared<std::atomic<bool>>(false)) {}
    ~Gate() { open(); }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
    void hold(const Gpu&, Stream) const;
    void open() const;

private:
    std::shared_ptr<std::atomic<bool>>
        open_;  // shared with callbacks, which may outlive it on a lost GPU
};

enum class Way { to, from };  // the GPU

// What has to be moved: `copies` of `bytes` each, one after the other, each to a place of its own,
// so that every byte that was moved can be looked at.
struct Load {
    std::size_t bytes = 0;
    int copies = 1;
    std::size_t total() const { return bytes * static_cast<std::size_t>(copies); }
};

// One way of one GPU: memory on both sides, and a stream between them.
class Lane {
public:
    Lane(const Gpu&, Way, const Load&, double limit_s);

    const Gpu& gpu() const { return gpu_; }
    Way way() const { return way_; }
    std::size_t bytes() const { return load_.total(); }

    void clear();  // the destination, so that nothing of an earlier copy is taken for this one's
    void queue(const Gate&);  // copies behind the gate
    bool started() const;     // never waits
    bool finished() const;
    double elapsed(const Lane& begun)
        const;  // seconds from the beginning of `begun`, of the same GPU, to this end

    struct Wrong {
        std::size_t offset;
        std::uint64_t expected, observed;
    };
    // Copies of which a byte is not as sent, and the first such place.
    int verify(std::optional<Wrong>& first);

private:
    bool reached(Event) const;
    void settle() const;  // waits for what was queued by others than queue()
    std::uint64_t key(int copy) const;

    const Gpu& gpu_;
    Way way_;
    Load load_;
    double limit_;
    HostBuffer host_;
    DeviceBuffer device_;
    std::optional<HostBuffer> readback_;  // of one copy, to look at what reached the GPU
    OwnedStream stream_;
    OwnedEvent begin_, end_, settled_;
};

}  // namespace assay::gpu
