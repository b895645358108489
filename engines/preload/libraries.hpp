// The list of libraries in LD_PRELOAD.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace assay::preload {

// Whether it is the library of a sanitizer, which ends the program unless it is the first one.
inline bool is_of_sanitizer(std::string_view path) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    for (const std::string_view mark :
         {"libasan.so", "libtsan.so", "liblsan.so", "libhwasan.so", "libubsan.so", "libclang_rt."})
        if (name.starts_with(mark)) return true;
    return false;
}

// The value of LD_PRELOAD with one more library, after those of sanitizers and before the user's
// others. `preloaded`: the value so far; null: none.
inline std::string with_library(const std::string& library, const char* preloaded) {
    const std::string_view list = preloaded != nullptr ? preloaded : "";
    std::string sanitizers, others;
    for (std::size_t begin = 0; begin < list.size();) {
        const std::size_t end = std::min(list.find_first_of(": ", begin), list.size());
        const std::string_view path = list.substr(begin, end - begin);
        if (is_of_sanitizer(path)) sanitizers.append(path).append(":");
        else if (!path.empty()) others.append(":").append(path);
        begin = end + 1;
    }
    return sanitizers + library + others;
}

}  // namespace assay::preload
