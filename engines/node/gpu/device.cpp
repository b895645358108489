// A GPU, its buffers and streams, and copies to and from it (see device.hpp).
#include "node/gpu/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <tuple>

#include "core/error.hpp"
#include "core/pattern.hpp"

namespace assay::gpu {
namespace {

constexpr int clear_byte = 0xA5;  // fills destinations before a copy

// A context takes some hundred MiB of the GPU, whatever the size of the copies. Pinned memory is
// the host's; the driver does not count it against the limit on locked memory.
std::string fix_for_memory(std::string_view call) {
    if (call == "cuMemHostRegister") return "free memory on this host, or use a smaller --size";
    const std::string users = "see in nvidia-smi who uses the GPU's memory, and free some";
    return call == "cuMemAlloc" ? users + ", or use a smaller --size" : users;
}

std::string fix_for(Result code, std::string_view call) {
    switch (code) {
        case result::out_of_memory: return fix_for_memory(call);
        case result::device_unavailable:
            return "see in nvidia-smi whether another program uses it exclusively; if not, look "
                   "for 'Xid' in dmesg";
        default: return "look for 'Xid' in dmesg, and check nvidia-smi";
    }
}

}  // namespace

// ---- Gpu

Gpu::Gpu(int number) : number_(number) {
    std::array<char, 256> buffer{};
    const auto read = [&](Result r, const char* call) {
        check(r, call);
        return std::string(buffer.data());
    };
    check(driver().device(&device_, number), "cuDeviceGet");
    name_ = read(driver().device_name(buffer.data(), static_cast<int>(buffer.size()), device_),
                 "cuDeviceGetName");
    pci_ = read(driver().device_pci(buffer.data(), static_cast<int>(buffer.size()), device_),
                "cuDeviceGetPCIBusId");
    std::ranges::transform(pci_, pci_.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::string node = read_line(sysfs("bus/pci/devices/" + pci_ + "/numa_node"));
    if (!node.empty() && node[0] != '-')
        numa_ = static_cast<int>(std::strtol(node.c_str(), nullptr, 10));
    std::array<unsigned char, 16> bytes{};
    check(driver().device_uuid(bytes.data(), device_), "cuDeviceGetUuid");
    uuid_ = "GPU";
    for (std::size_t i = 0; i < bytes.size(); ++i)
        uuid_ += fmt::format("{}{:02x}", i == 0 || (i >= 4 && i <= 10 && i % 2 == 0) ? "-" : "",
                             bytes[i]);
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
    make_current();
    check(driver().memory_info(&free, &total), "cuMemGetInfo");
    return free;
}

bool Gpu::try_make_current() const {
    return !lost_ && driver().set_current(context_) == result::success;
}

void Gpu::make_current() const { check(driver().set_current(context_), "cuCtxSetCurrent"); }

void Gpu::bind_thread() const {
    const auto node = std::ranges::find_if(
        numa_nodes(), [&](const NumaNode& entry) { return numa_ == entry.number; });
    if (node != numa_nodes().end() && !node->cores.empty()) bind_to_node(*node);
}

int Gpu::memory_node() const {
    const bool is_listed = std::ranges::any_of(
        numa_nodes(), [&](const NumaNode& entry) { return numa_ == entry.number; });
    return is_listed ? *numa_ : NodeMemory::any;
}

void Gpu::check(Result code, const char* call) const {
    if (code == result::success) return;
    if (code != result::out_of_memory) lost_ = true;
    throw Error(fmt::format("{}: {} failed: {}", text(), call, driver().error_text(code)),
                fix_for(code, call));
}

void Gpu::give_up(const std::string& what) const {
    lost_ = true;
    throw Error(text() + ": " + what,
                "look for 'Xid' in dmesg, and check nvidia-smi; where the copies are large for the "
                "link, give a longer --timeout");
}

// ---- buffers

HostBuffer::HostBuffer(const Gpu& gpu, std::size_t bytes)
    : gpu_(gpu), memory_(bytes, gpu.memory_node()) {
    std::memset(memory_.data(), clear_byte, memory_.size());
    gpu_.make_current();
    gpu_.check(driver().pin(memory_.data(), memory_.size(), host_register_portable),
               "cuMemHostRegister");
}

HostBuffer::~HostBuffer() {
    if (gpu_.try_make_current()) driver().unpin(memory_.data());
    else new NodeMemory(std::move(memory_));  // leaked: a lost GPU may still write to it
}

DeviceBuffer::DeviceBuffer(const Gpu& gpu, std::size_t bytes) : gpu_(gpu) {
    gpu_.make_current();
    gpu_.check(driver().allocate(&pointer_, bytes), "cuMemAlloc");
}

DeviceBuffer::~DeviceBuffer() {
    if (gpu_.try_make_current()) driver().free(pointer_);
}

// ---- streams and events

OwnedStream::OwnedStream(const Gpu& gpu) : gpu_(gpu) {
    gpu_.make_current();
    gpu_.check(driver().create_stream(&stream_, stream_non_blocking), "cuStreamCreate");
}

OwnedStream::~OwnedStream() {
    if (gpu_.try_make_current()) driver().destroy_stream(stream_);
}

OwnedEvent::OwnedEvent(const Gpu& gpu) : gpu_(gpu) {
    gpu_.make_current();
    gpu_.check(driver().create_event(&event_, 0), "cuEventCreate");
}

OwnedEvent::~OwnedEvent() {
    if (gpu_.try_make_current()) driver().destroy_event(event_);
}

// ---- StreamBlocker

void StreamBlocker::block(const Gpu& gpu, Stream stream) const {
    using Shared = std::shared_ptr<std::atomic<bool>>;
    const auto wait = [](void* state) {
        const std::unique_ptr<Shared> open(static_cast<Shared*>(state));
        (*open)->wait(false);
    };
    auto state = std::make_unique<Shared>(open_);
    gpu.check(driver().call_host(stream, wait, state.get()), "cuLaunchHostFunc");
    std::ignore = state.release();  // `wait` owns it now
}

void StreamBlocker::release() const {
    open_->store(true);
    open_->notify_all();
}

// ---- CopyChannel

CopyChannel::CopyChannel(const Gpu& gpu, CopyDirection direction, const CopySize& size,
                         double limit_s)
    : gpu_(gpu),
      direction_(direction),
      size_(size),
      limit_(limit_s),
      host_(gpu, size.total()),
      device_(gpu, size.total()),
      stream_(gpu),
      begin_event_(gpu),
      end_event_(gpu),
      idle_event_(gpu) {
    for (int c = 0; c < size_.copies; ++c)
        stamp(host_.data() + static_cast<std::size_t>(c) * size_.bytes, size_.bytes, key(c));
    if (direction_ == CopyDirection::h2d) {
        readback_.emplace(gpu_, size_.bytes);
        return;
    }
    gpu_.check(driver().copy_to(device_.address(0), host_.data(), size_.total(), stream_),
               "cuMemcpyHtoDAsync");
    wait_for_stream();
}

std::uint64_t CopyChannel::key(int copy) const {
    return stamp_key(gpu_.number(), direction_ == CopyDirection::h2d ? 0 : 1,
                     static_cast<std::uint64_t>(copy));
}

void CopyChannel::clear() {
    if (direction_ == CopyDirection::d2h) {
        std::memset(host_.data(), clear_byte, size_.total());
        return;
    }
    gpu_.make_current();
    gpu_.check(driver().fill(device_.address(0), clear_byte, size_.total(), stream_),
               "cuMemsetD8Async");
    wait_for_stream();
}

void CopyChannel::queue(const StreamBlocker& blocker) {
    gpu_.make_current();
    blocker.block(gpu_, stream_);
    gpu_.check(driver().record(begin_event_, stream_), "cuEventRecord");
    for (int c = 0; c < size_.copies; ++c) {
        const std::size_t offset = static_cast<std::size_t>(c) * size_.bytes;
        if (direction_ == CopyDirection::h2d)
            gpu_.check(driver().copy_to(device_.address(offset), host_.data() + offset, size_.bytes,
                                        stream_),
                       "cuMemcpyHtoDAsync");
        else
            gpu_.check(driver().copy_from(host_.data() + offset, device_.address(offset),
                                          size_.bytes, stream_),
                       "cuMemcpyDtoHAsync");
    }
    gpu_.check(driver().record(end_event_, stream_), "cuEventRecord");
}

bool CopyChannel::reached(Event event) const {
    gpu_.make_current();
    const Result code = driver().query(event);
    if (code == result::not_ready) return false;
    gpu_.check(code, "a copy");
    return true;
}

bool CopyChannel::started() const { return reached(begin_event_); }
bool CopyChannel::finished() const { return reached(end_event_); }

double CopyChannel::elapsed(const CopyChannel& first) const {
    float ms = 0;
    gpu_.make_current();
    gpu_.check(driver().elapsed(&ms, first.begin_event_, end_event_), "cuEventElapsedTime");
    return static_cast<double>(ms) * 1e-3;
}

void CopyChannel::wait_for_stream() const {
    gpu_.check(driver().record(idle_event_, stream_), "cuEventRecord");
    const Nanoseconds start = now();
    while (!reached(idle_event_)) {
        if (seconds(now() - start) > limit_)
            gpu_.give_up(
                fmt::format("does not answer: a copy has not ended within {:g} s", limit_));
        std::this_thread::yield();
    }
}

int CopyChannel::verify(std::optional<Corruption>& first) {
    int wrong = 0;
    for (int c = 0; c < size_.copies; ++c) {
        const std::size_t offset = static_cast<std::size_t>(c) * size_.bytes;
        const std::byte* arrived = host_.data() + offset;
        if (direction_ == CopyDirection::h2d) {
            gpu_.make_current();
            std::memset(readback_->data(), clear_byte, size_.bytes);
            gpu_.check(driver().copy_from(readback_->data(), device_.address(offset), size_.bytes,
                                          stream_),
                       "cuMemcpyDtoHAsync");
            wait_for_stream();
            arrived = readback_->data();
        }
        const auto wrong_byte = first_wrong_byte(arrived, size_.bytes, key(c));
        if (!wrong_byte) continue;
        ++wrong;
        const std::size_t word = *wrong_byte & ~std::size_t{7};
        std::uint64_t observed = 0;
        std::memcpy(&observed, arrived + word, sizeof observed);
        if (!first) first = Corruption{c, *wrong_byte, stamped_word(key(c), word), observed};
    }
    return wrong;
}

}  // namespace assay::gpu
