// Loads NVIDIA's driver library and formats its errors.
#include "node/gpu/cuda.hpp"

#include <dlfcn.h>

#include <type_traits>

namespace assay::gpu {

Driver::Driver() {
    // Not libcuda.so, which may be the toolkit's stub library.
    void* const handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        missing = "no NVIDIA driver here: libcuda.so.1 cannot be loaded";
        return;
    }
    const auto load = [&](auto& function, const char* symbol) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
        if (function == nullptr && missing.empty())
            missing = std::string("NVIDIA's driver is too old: libcuda.so.1 lacks ") + symbol;
    };
#define ASSAY_CUDA_LOAD(member, symbol, parameters) load(member, #symbol);
    ASSAY_CUDA_CALLS(ASSAY_CUDA_LOAD)
#undef ASSAY_CUDA_LOAD
}

std::string Driver::error_text(Result code) const {
    const char *name = nullptr, *text = nullptr;
    if (get_error_name(code, &name) != result::success || name == nullptr)
        return "CUDA error " + std::to_string(code);
    if (get_error_string(code, &text) != result::success || text == nullptr) return name;
    return std::string(name) + ": " + text;
}

const Driver& driver() {
    static const Driver loaded;
    return loaded;
}

}  // namespace assay::gpu
