// The functions of NVIDIA's driver API that copies need, loaded from libcuda.so.1 at run time. So
// the build needs no CUDA, and the program also runs without a GPU. Types, codes and signatures are
// those of the CUDA Driver API reference, CUDA 10.0 and later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace assay::gpu {

using Result = int;
using Device = int;
using DevicePointer = unsigned long long;
using Context = struct CUctx_st*;
using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;

namespace result {
inline constexpr Result success = 0, out_of_memory = 2, stub_library = 34, device_unavailable = 46,
                        no_device = 100, not_ready = 600, system_not_ready = 802,
                        driver_mismatch = 803;
}

inline constexpr unsigned stream_non_blocking = 1;
inline constexpr unsigned host_register_portable = 1;

// X(member, symbol, parameters) for every function used. The "_v2" functions have 64-bit sizes;
// cuda.h maps the plain names to them.
#define ASSAY_CUDA_CALLS(X)                                                             \
    X(init, cuInit, (unsigned flags))                                                   \
    X(get_error_name, cuGetErrorName, (Result, const char** name))                      \
    X(get_error_string, cuGetErrorString, (Result, const char** text))                  \
    X(device_count, cuDeviceGetCount, (int* count))                                     \
    X(device, cuDeviceGet, (Device*, int ordinal))                                      \
    X(device_name, cuDeviceGetName, (char* name, int length, Device))                   \
    X(device_uuid, cuDeviceGetUuid, (void* sixteen_bytes, Device))                      \
    X(device_pci, cuDeviceGetPCIBusId, (char* address, int length, Device))             \
    X(retain, cuDevicePrimaryCtxRetain, (Context*, Device))                             \
    X(release, cuDevicePrimaryCtxRelease_v2, (Device))                                  \
    X(set_current, cuCtxSetCurrent, (Context))                                          \
    X(memory_info, cuMemGetInfo_v2, (std::size_t* free, std::size_t* total))            \
    X(allocate, cuMemAlloc_v2, (DevicePointer*, std::size_t bytes))                     \
    X(free, cuMemFree_v2, (DevicePointer))                                              \
    X(pin, cuMemHostRegister_v2, (void*, std::size_t bytes, unsigned flags))            \
    X(unpin, cuMemHostUnregister, (void*))                                              \
    X(copy_to, cuMemcpyHtoDAsync_v2, (DevicePointer, const void*, std::size_t, Stream)) \
    X(copy_from, cuMemcpyDtoHAsync_v2, (void*, DevicePointer, std::size_t, Stream))     \
    X(fill, cuMemsetD8Async, (DevicePointer, unsigned char, std::size_t, Stream))       \
    X(create_stream, cuStreamCreate, (Stream*, unsigned flags))                         \
    X(destroy_stream, cuStreamDestroy_v2, (Stream))                                     \
    X(call_host, cuLaunchHostFunc, (Stream, void (*)(void*), void*))                    \
    X(create_event, cuEventCreate, (Event*, unsigned flags))                            \
    X(destroy_event, cuEventDestroy_v2, (Event))                                        \
    X(record, cuEventRecord, (Event, Stream))                                           \
    X(query, cuEventQuery, (Event))                                                     \
    X(elapsed, cuEventElapsedTime, (float* milliseconds, Event begin, Event end))

struct Driver {
    Driver();
    std::string missing;  // why the driver cannot be used; empty if it can
#define ASSAY_CUDA_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
    ASSAY_CUDA_CALLS(ASSAY_CUDA_MEMBER)
#undef ASSAY_CUDA_MEMBER

    // "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
    std::string error_text(Result) const;
};

const Driver& driver();  // loaded on first use

}  // namespace assay::gpu
