#include "node/gpu/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <thread>

#include "core/error.hpp"
#include "core/pattern.hpp"

namespace assay::gpu {
namespace {

constexpr int cleared = 0xA5;

std::string hint_for(Result code) {
    switch (code) {
        case result::out_of_memory:
            return "nvidia-smi shows who uses its memory; give a smaller --size; is locked memory "
                   "limited (ulimit -l)?";
        case result::device_unavailable:
            return "another program may hold it exclusively: see nvidia-smi; if not, look for "
                   "'Xid' in dmesg";
        default: return "look for 'Xid' in dmesg, and at nvidia-smi";
    }
}

}  // namespace

// ---- Gpu

Gpu::Gpu(int number) : number_(number) {
    std::array<char, 256> words{};
    const auto read = [&](Result r, const char* call) {
        check(r, call);
        return std::string(words.data());
    };
    check(driver().device(&device_, number), "cuDeviceGet");
    name_ = read(driver().device_name(words.data(), static_cast<int>(words.size()), device_),
                 "cuDeviceGetName");
    pci_ = read(driver().device_pci(words.data(), static_cast<int>(words.size()), device_),
                "cuDeviceGetPCIBusId");
    std::ranges::transform(pci_, pci_.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::string node = read_line(sysfs("bus/pci/devices/" + pci_ + "/numa_node"));
    if (!node.empty() && node[0] != '-') numa_ = std::atoi(node.c_str());
    check(driver().retain(&context_, device_), "cuDevicePrimaryCtxRetain");
}

Gpu::~Gpu() {
    if (!lost_) driver().release(device_);
}

std::string Gpu::text() const {
    return name_.empty() ? fmt::format("gpu{}", number_)
                         : fmt::format("gpu{} ({}, {})", number_, name_, pci_);
}

std::size_t Gpu::free_memory() const {
    std::size_t free = 0, total = 0;
    enter();
    check(driver().memory_info(&free, &total), "cuMemGetInfo");
    return free;
}

bool Gpu::try_enter() const { return !lost_ && driver().set_current(context_) == result::success; }

void Gpu::enter() const { check(driver().set_current(context_), "cuCtxSetCurrent"); }

void Gpu::bind() const {
    const auto node = std::ranges::find_if(
        numa_nodes(), [&](const NumaNode& one) { return numa_ == one.number; });
    if (node != numa_nodes().end() && !node->cores.empty()) bind_to_node(*node);
}

int Gpu::memory_node() const {
    const bool known =
        std::ranges::any_of(numa_nodes(), [&](const NumaNode& one) { return numa_ == one.number; });
    return known ? *numa_ : NodeMemory::any;
}

void Gpu::check(Result code, const char* call) const {
    if (code == result::success) return;
    if (code != result::out_of_memory) lost_ = true;
    throw Error(fmt::format("{}: {} failed: {}", text(), call, driver().words(code)),
                hint_for(code));
}

void Gpu::give_up(const std::string& what) const {
    lost_ = true;
    throw Error(text() + ": " + what, hint_for(result::success));
}

// ---- buffers

HostBuffer::HostBuffer(const Gpu& gpu, std::size_t bytes)
    : gpu_(gpu), memory_(bytes, gpu.memory_node()) {
    std::memset(memory_.data(), cleared, memory_.size());
    gpu_.enter();
    gpu_.check(driver().pin(memory_.data(), memory_.size(), host_register_portable),
               "cuMemHostRegister");
}

HostBuffer::~HostBuffer() {
    if (gpu_.try_enter()) driver().unpin(memory_.data());
    else
        new NodeMemory(std::move(
            memory_));  // a lost GPU may still write to it: it stays until the process ends
}

DeviceBuffer::DeviceBuffer(const Gpu& gpu, std::size_t bytes) : gpu_(gpu) {
    gpu_.enter();
    gpu_.check(driver().allocate(&pointer_, bytes), "cuMemAlloc");
}

DeviceBuffer::~DeviceBuffer() {
    if (gpu_.try_enter()) driver().free(pointer_);
}

// ---- streams and events

OwnedStream::OwnedStream(const Gpu& gpu) : gpu_(gpu) {
    gpu_.enter();
    gpu_.check(driver().create_stream(&stream_, stream_non_blocking), "cuStreamCreate");
}

OwnedStream::~OwnedStream() {
    if (gpu_.try_enter()) driver().destroy_stream(stream_);
}

OwnedEvent::OwnedEvent(const Gpu& gpu) : gpu_(gpu) {
    gpu_.enter();
    gpu_.check(driver().create_event(&event_, 0), "cuEventCreate");
}

OwnedEvent::~OwnedEvent() {
    if (gpu_.try_enter()) driver().destroy_event(event_);
}

// ---- Gate

void Gate::hold(const Gpu& gpu, Stream stream) const {
    using Shared = std::shared_ptr<std::atomic<bool>>;
    const auto wait = [](void* held) {
        const std::unique_ptr<Shared> open(static_cast<Shared*>(held));
        (*open)->wait(false);
    };
    auto held = std::make_unique<Shared>(open_);
    gpu.check(driver().call_host(stream, wait, held.get()), "cuLaunchHostFunc");
    held.release();
}

void Gate::open() const {
    open_->store(true);
    open_->notify_all();
}

// ---- Lane

Lane::Lane(const Gpu& gpu, Way way, const Load& load, double limit_s)
    : gpu_(gpu),
      way_(way),
      load_(load),
      limit_(limit_s),
      host_(gpu, load.total()),
      device_(gpu, load.total()),
      stream_(gpu),
      begin_(gpu),
      end_(gpu),
      settled_(gpu) {
    for (int c = 0; c < load_.copies; ++c)
        stamp(host_.data() + static_cast<std::size_t>(c) * load_.bytes, load_.bytes, key(c));
    if (way_ == Way::to) {
        readback_.emplace(gpu_, load_.bytes);
        return;
    }
    gpu_.check(driver().copy_to(device_.at(0), host_.data(), load_.total(), stream_),
               "cuMemcpyHtoDAsync");
    settle();
}

std::uint64_t Lane::key(int copy) const {
    return stamp_key(gpu_.number(), way_ == Way::to ? 0 : 1, static_cast<std::uint64_t>(copy));
}

void Lane::clear() {
    if (way_ == Way::from) {
        std::memset(host_.data(), cleared, load_.total());
        return;
    }
    gpu_.enter();
    gpu_.check(driver().fill(device_.at(0), cleared, load_.total(), stream_), "cuMemsetD8Async");
    settle();
}

void Lane::queue(const Gate& gate) {
    gpu_.enter();
    gate.hold(gpu_, stream_);
    gpu_.check(driver().record(begin_, stream_), "cuEventRecord");
    for (int c = 0; c < load_.copies; ++c) {
        const std::size_t at = static_cast<std::size_t>(c) * load_.bytes;
        if (way_ == Way::to)
            gpu_.check(driver().copy_to(device_.at(at), host_.data() + at, load_.bytes, stream_),
                       "cuMemcpyHtoDAsync");
        else
            gpu_.check(driver().copy_from(host_.data() + at, device_.at(at), load_.bytes, stream_),
                       "cuMemcpyDtoHAsync");
    }
    gpu_.check(driver().record(end_, stream_), "cuEventRecord");
}

bool Lane::reached(Event event) const {
    gpu_.enter();
    const Result code = driver().query(event);
    if (code == result::not_ready) return false;
    gpu_.check(code, "a copy");
    return true;
}

bool Lane::started() const { return reached(begin_); }
bool Lane::finished() const { return reached(end_); }

double Lane::elapsed(const Lane& begun) const {
    float ms = 0;
    gpu_.enter();
    gpu_.check(driver().elapsed(&ms, begun.begin_, end_), "cuEventElapsedTime");
    return static_cast<double>(ms) * 1e-3;
}

void Lane::settle() const {
    gpu_.check(driver().record(settled_, stream_), "cuEventRecord");
    const Nanoseconds began = now();
    while (!reached(settled_)) {
        if (seconds(now() - began) > limit_)
            gpu_.give_up(
                fmt::format("does not answer: a copy has not ended within {:g} s", limit_));
        std::this_thread::yield();
    }
}

int Lane::verify(std::optional<Wrong>& first) {
    int wrong = 0;
    for (int c = 0; c < load_.copies; ++c) {
        const std::size_t at = static_cast<std::size_t>(c) * load_.bytes;
        const std::byte* arrived = host_.data() + at;
        if (way_ == Way::to) {
            gpu_.enter();
            std::memset(readback_->data(), cleared, load_.bytes);
            gpu_.check(driver().copy_from(readback_->data(), device_.at(at), load_.bytes, stream_),
                       "cuMemcpyDtoHAsync");
            settle();
            arrived = readback_->data();
        }
        const auto offset = first_wrong_byte(arrived, load_.bytes, key(c));
        if (!offset) continue;
        ++wrong;
        const std::size_t word = *offset & ~std::size_t{7};
        std::uint64_t observed = 0;
        std::memcpy(&observed, arrived + word, sizeof observed);
        if (!first) first = Wrong{at + *offset, stamped_word(key(c), word), observed};
    }
    return wrong;
}

}  // namespace assay::gpu
