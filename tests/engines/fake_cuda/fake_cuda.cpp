// A fake libcuda.so.1: the part of NVIDIA's driver API that Assay uses, with simulated GPUs,
// bandwidths and faults. Copies really move bytes, in the order and at the rates of the machine
// that $FAKE_CUDA describes (JSON):
//
//   gpus     [{name, pci, memory, h2d, d2h}]   bytes and B/s
//   shared   {h2d, d2h}: B/s of a link that all GPUs share; none by default
//   init     result of cuInit
//   fail     {call, gpu, code, after}: from the after-th time on, the call fails with the code for
//            that GPU
//   vanish   {gpu, after}: from the after-th copy on, every call for the GPU fails
//   hang     {gpu, after}: the after-th copy of the GPU never ends
//   late     seconds: a query sees the begin of copies only that long after it
//   corrupt  {gpu, way, after, offset}: one byte of the after-th copy of the GPU arrives wrong
//
// Misuse that a real driver might accept (memory that is not pinned, a stream of another GPU, a
// leak) is reported on standard error, in lines that begin with "fake:".
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

namespace {

using Json = nlohmann::json;
using Result = int;
using Clock = std::chrono::steady_clock;

constexpr Result success = 0, invalid_value = 1, out_of_memory = 2, not_initialized = 3,
                 no_device = 100, invalid_device = 101, invalid_context = 201, invalid_handle = 400,
                 not_ready = 600, launch_failed = 719;

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

void report(const std::string& message) { std::fprintf(stderr, "fake: %s\n", message.c_str()); }

struct Gpu {
    int number = 0;
    std::string name, pci;
    std::size_t memory = 0, used = 0;
    double rate[2] = {0, 0};       // B/s, to and from
    double link_free[2] = {0, 0};  // when the link is free, in seconds on the clock
    int retained = 0, objects = 0;
    long copies[2] = {0, 0}, copies_in_all = 0;
    std::atomic<bool> vanished = false;
};

struct Machine {
    Json plan;
    std::mutex mutex;
    std::deque<Gpu> gpus;
    double shared[2] = {0, 0}, shared_free[2] = {0, 0};
    bool initialized = false;
    std::map<std::string, long> calls;
    std::map<const char*, std::size_t> pinned;
    std::map<unsigned long long, std::pair<std::size_t, Gpu*>> device_memory;

    Machine() {
        const char* text = std::getenv("FAKE_CUDA");
        plan = Json::parse(text ? text : "{}");
        for (const Json& entry : plan.value("gpus", Json::array())) {
            Gpu& gpu = gpus.emplace_back();
            gpu.number = static_cast<int>(gpus.size()) - 1;
            gpu.name = entry.value("name", "Fake GPU");
            gpu.pci = entry.value("pci", "0000:0" + std::to_string(gpu.number + 1) + ":00.0");
            gpu.memory = entry.value("memory", std::size_t{1} << 30);
            gpu.rate[0] = entry.value("h2d", 1e9);
            gpu.rate[1] = entry.value("d2h", 1e9);
        }
        if (plan.contains("shared")) {
            shared[0] = plan["shared"].value("h2d", 0.0);
            shared[1] = plan["shared"].value("d2h", 0.0);
        }
    }
};

Machine& machine() {
    static Machine* const instance = new Machine;  // never destroyed: streams run to the end
    return *instance;
}

thread_local Gpu* current = nullptr;

// Called at the begin of each driver call: returns an injected failure, or success.
Result begin_call(const char* call, const Gpu* gpu) {
    Machine& m = machine();
    const std::lock_guard lock(m.mutex);
    if (!m.initialized && std::string(call) != "cuInit") return not_initialized;
    if (gpu && gpu->vanished) return launch_failed;
    const auto fail = m.plan.find("fail");
    if (fail == m.plan.end() || fail->value("call", "") != call) return success;
    if (fail->contains("gpu") && (!gpu || (*fail)["gpu"] != gpu->number)) return success;
    return ++m.calls[call] >= fail->value("after", 1L) ? fail->value("code", 999) : success;
}

Result begin_call_of_current(const char* call) {
    if (const Result result = begin_call(call, current)) return result;
    if (current) return success;
    report(std::string(call) + " without a context");
    return invalid_context;
}

// Whether the fault is injected into the GPU's `count`-th operation.
bool is_injected(const char* fault, const Gpu& gpu, long count) {
    const Json& plan = machine().plan;
    return plan.contains(fault) && plan[fault].value("gpu", 0) == gpu.number &&
           count == plan[fault].value("after", 1L);
}

struct StreamState {
    Gpu* gpu = nullptr;
    double time = 0;        // end of the last queued work
    bool released = false;  // by a host function; the next event is the begin of copies
    std::mutex mutex;
    std::condition_variable work_added;
    std::deque<std::function<void()>> queue;
    bool ended = false;
    std::thread worker;

    void push(std::function<void()> work) {
        const std::lock_guard lock(mutex);
        queue.push_back(std::move(work));
        work_added.notify_one();
    }
    void run() {
        for (std::unique_lock lock(mutex);;) {
            work_added.wait(lock, [&] { return ended || !queue.empty(); });
            if (queue.empty()) return;
            const auto work = std::move(queue.front());
            queue.pop_front();
            lock.unlock();
            work();
            lock.lock();
        }
    }
};

struct EventState {
    Gpu* gpu = nullptr;
    std::atomic<bool> pending = false;
    double time = 0;
    double late = 0;  // seconds until a query sees it
};

bool is_pinned(const void* data, std::size_t bytes) {
    const auto& pinned = machine().pinned;
    auto block = pinned.upper_bound(static_cast<const char*>(data));
    if (block == pinned.begin()) return false;
    --block;
    return static_cast<const char*>(data) + bytes <= block->first + block->second;
}

bool is_on_device(unsigned long long address, std::size_t bytes, const Gpu* gpu) {
    const auto& memory = machine().device_memory;
    auto block = memory.upper_bound(address);
    if (block == memory.begin()) return false;
    --block;
    return address + bytes <= block->first + block->second.first && block->second.second == gpu;
}

void wait_until(double time_s) {
    std::this_thread::sleep_until(Clock::time_point(
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(time_s))));
}

// Performs one copy at the simulated rate. `direction`: 0 to the GPU, 1 from it.
void perform_copy(StreamState& stream, int direction, char* to, const char* from,
                  std::size_t bytes) {
    Machine& m = machine();
    Gpu& gpu = *stream.gpu;
    bool hangs, corrupts;
    {
        const std::lock_guard lock(m.mutex);
        ++gpu.copies[direction];
        ++gpu.copies_in_all;
        if (is_injected("vanish", gpu, gpu.copies_in_all)) gpu.vanished = true;
        hangs = is_injected("hang", gpu, gpu.copies_in_all);
        corrupts = is_injected("corrupt", gpu, gpu.copies[direction]) &&
                   (m.plan["corrupt"].value("way", "h2d") == "h2d") == (direction == 0);
        const double begin = std::max(stream.time, gpu.link_free[direction]);
        double end = begin + static_cast<double>(bytes) / gpu.rate[direction];
        if (m.shared[direction] > 0) {
            m.shared_free[direction] = std::max(m.shared_free[direction], begin) +
                                       static_cast<double>(bytes) / m.shared[direction];
            end = std::max(end, m.shared_free[direction]);
        }
        stream.time = gpu.link_free[direction] = end;
    }
    while (hangs) std::this_thread::sleep_for(std::chrono::hours(1));
    if (gpu.vanished) return;
    std::memcpy(to, from, bytes);
    if (corrupts) to[m.plan["corrupt"].value("offset", std::size_t{0})] ^= 0x10;
    wait_until(stream.time);
}

Result queue_copy(const char* call, int direction, StreamState* stream, void* host,
                  unsigned long long device, std::size_t bytes) {
    if (const Result result = begin_call_of_current(call)) return result;
    if (stream->gpu != current) {
        report(std::string(call) + ": a stream of another GPU");
        return invalid_handle;
    }
    {
        const std::lock_guard lock(machine().mutex);
        if (!is_pinned(host, bytes))
            report(std::string(call) + ": the host's memory is not pinned");
        if (!is_on_device(device, bytes, current)) {
            report(std::string(call) + ": not memory of this GPU");
            return invalid_value;
        }
    }
    char* const device_data = reinterpret_cast<char*>(device);
    char* const host_data = static_cast<char*>(host);
    stream->push([=] {
        perform_copy(*stream, direction, direction == 0 ? device_data : host_data,
                     direction == 0 ? host_data : device_data, bytes);
    });
    return success;
}

}  // namespace

extern "C" {

Result cuInit(unsigned) {
    if (const Result result = machine().plan.value("init", success)) return result;
    machine().initialized = true;
    return machine().gpus.empty() ? no_device : success;
}

Result cuGetErrorName(Result code, const char** name) {
    static const std::map<Result, const char*> names = {{success, "CUDA_SUCCESS"},
                                                        {invalid_value, "CUDA_ERROR_INVALID_VALUE"},
                                                        {out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                        {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
                                                        {no_device, "CUDA_ERROR_NO_DEVICE"},
                                                        {launch_failed, "CUDA_ERROR_LAUNCH_FAILED"},
                                                        {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
                                                        {304, "CUDA_ERROR_OPERATING_SYSTEM"}};
    const auto entry = names.find(code);
    if (entry == names.end()) return invalid_value;
    *name = entry->second;
    return success;
}

Result cuGetErrorString(Result code, const char** text) {
    if (const Result result = cuGetErrorName(code, text)) return result;
    *text = code == launch_failed ? "unspecified launch failure" : "words of the fake driver";
    return success;
}

Result cuDeviceGetCount(int* count) {
    *count = static_cast<int>(machine().gpus.size());
    return begin_call("cuDeviceGetCount", nullptr);
}

Result cuDeviceGet(int* device, int ordinal) {
    if (ordinal < 0 || ordinal >= static_cast<int>(machine().gpus.size())) return invalid_device;
    *device = ordinal;
    return begin_call("cuDeviceGet", &machine().gpus[static_cast<std::size_t>(ordinal)]);
}

Result cuDeviceGetName(char* name, int length, int device) {
    std::snprintf(name, static_cast<std::size_t>(length), "%s",
                  machine().gpus[static_cast<std::size_t>(device)].name.c_str());
    return success;
}

Result cuDeviceGetPCIBusId(char* address, int length, int device) {
    std::snprintf(address, static_cast<std::size_t>(length), "%s",
                  machine().gpus[static_cast<std::size_t>(device)].pci.c_str());
    return success;
}

// Bytes 1 to 15, and the GPU's number.
Result cuDeviceGetUuid(unsigned char* uuid, int device) {
    for (unsigned char i = 0; i < 15; ++i) uuid[i] = static_cast<unsigned char>(i + 1);
    uuid[15] = static_cast<unsigned char>(device);
    return success;
}

Result cuDevicePrimaryCtxRetain(Gpu** context, int device) {
    Gpu& gpu = machine().gpus[static_cast<std::size_t>(device)];
    if (const Result result = begin_call("cuDevicePrimaryCtxRetain", &gpu)) return result;
    ++gpu.retained;
    *context = &gpu;
    return success;
}

Result cuDevicePrimaryCtxRelease_v2(int device) {
    Gpu& gpu = machine().gpus[static_cast<std::size_t>(device)];
    if (--gpu.retained == 0 && gpu.objects != 0)
        report(std::to_string(gpu.objects) + " objects of " + gpu.pci + " were not given back");
    return success;
}

Result cuCtxSetCurrent(Gpu* context) {
    if (const Result result = begin_call("cuCtxSetCurrent", context)) return result;
    current = context;
    return success;
}

Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
    if (const Result result = begin_call_of_current("cuMemGetInfo_v2")) return result;
    *total = current->memory;
    *free = current->memory - current->used;
    return success;
}

Result cuMemAlloc_v2(unsigned long long* pointer, std::size_t bytes) {
    if (const Result result = begin_call_of_current("cuMemAlloc_v2")) return result;
    const std::lock_guard lock(machine().mutex);
    if (current->used + bytes > current->memory) return out_of_memory;
    current->used += bytes;
    ++current->objects;
    *pointer = reinterpret_cast<unsigned long long>(std::malloc(bytes));
    machine().device_memory[*pointer] = {bytes, current};
    return success;
}

Result cuMemFree_v2(unsigned long long pointer) {
    if (const Result result = begin_call_of_current("cuMemFree_v2")) return result;
    const std::lock_guard lock(machine().mutex);
    const auto block = machine().device_memory.find(pointer);
    if (block == machine().device_memory.end()) {
        report("memory given back that is none");
        return invalid_value;
    }
    block->second.second->used -= block->second.first;
    --block->second.second->objects;
    std::free(reinterpret_cast<void*>(pointer));
    machine().device_memory.erase(block);
    return success;
}

Result cuMemHostRegister_v2(void* data, std::size_t bytes, unsigned) {
    if (const Result result = begin_call_of_current("cuMemHostRegister_v2")) return result;
    const std::lock_guard lock(machine().mutex);
    machine().pinned[static_cast<char*>(data)] = bytes;
    ++current->objects;
    return success;
}

Result cuMemHostUnregister(void* data) {
    if (const Result result = begin_call_of_current("cuMemHostUnregister")) return result;
    const std::lock_guard lock(machine().mutex);
    if (machine().pinned.erase(static_cast<char*>(data)) == 0)
        report("memory unpinned that was not pinned");
    --current->objects;
    return success;
}

Result cuStreamCreate(StreamState** stream, unsigned) {
    if (const Result result = begin_call_of_current("cuStreamCreate")) return result;
    auto* state = new StreamState;
    state->gpu = current;
    state->worker = std::thread([state] { state->run(); });
    ++current->objects;
    *stream = state;
    return success;
}

Result cuStreamDestroy_v2(StreamState* stream) {
    if (const Result result = begin_call_of_current("cuStreamDestroy_v2")) return result;
    {
        const std::lock_guard lock(stream->mutex);
        stream->ended = true;
        stream->work_added.notify_one();
    }
    --stream->gpu->objects;
    stream->worker.detach();  // it may still run; the state is leaked to it
    return success;
}

Result cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, std::size_t bytes,
                            StreamState* stream) {
    return queue_copy("cuMemcpyHtoDAsync_v2", 0, stream, const_cast<void*>(from), to, bytes);
}

Result cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, std::size_t bytes,
                            StreamState* stream) {
    return queue_copy("cuMemcpyDtoHAsync_v2", 1, stream, to, from, bytes);
}

Result cuMemsetD8Async(unsigned long long address, unsigned char value, std::size_t bytes,
                       StreamState* stream) {
    if (const Result result = begin_call_of_current("cuMemsetD8Async")) return result;
    stream->push([=] { std::memset(reinterpret_cast<void*>(address), value, bytes); });
    return success;
}

Result cuLaunchHostFunc(StreamState* stream, void (*function)(void*), void* data) {
    if (const Result result = begin_call_of_current("cuLaunchHostFunc")) return result;
    stream->released = true;
    stream->push([=] {
        function(data);
        stream->time = std::max(stream->time, now());
    });
    return success;
}

Result cuEventCreate(EventState** event, unsigned) {
    if (const Result result = begin_call_of_current("cuEventCreate")) return result;
    *event = new EventState;
    (*event)->gpu = current;
    ++current->objects;
    return success;
}

Result cuEventDestroy_v2(EventState* event) {
    if (const Result result = begin_call_of_current("cuEventDestroy_v2")) return result;
    --event->gpu->objects;
    delete event;
    return success;
}

Result cuEventRecord(EventState* event, StreamState* stream) {
    if (const Result result = begin_call_of_current("cuEventRecord")) return result;
    if (event->gpu != stream->gpu) report("an event of another GPU");
    event->pending = true;
    event->late = std::exchange(stream->released, false) ? machine().plan.value("late", 0.0) : 0;
    stream->push([=] {
        event->time = stream->time;
        event->pending = false;
    });
    return success;
}

Result cuEventQuery(EventState* event) {
    if (const Result result = begin_call("cuEventQuery", event->gpu)) return result;
    return event->pending || now() < event->time + event->late ? not_ready : success;
}

Result cuEventElapsedTime(float* milliseconds, EventState* begin, EventState* end) {
    if (const Result result = begin_call_of_current("cuEventElapsedTime")) return result;
    if (begin->gpu != end->gpu) report("events of two GPUs compared");
    *milliseconds = static_cast<float>((end->time - begin->time) * 1e3);
    return success;
}

}  // extern "C"
