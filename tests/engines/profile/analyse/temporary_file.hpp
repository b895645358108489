// A file that goes with its object, and text packed as heaptrack packs it.
#pragma once

#include <unistd.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace assay::heap {

struct TemporaryFile {
    // A name that no file has.
    TemporaryFile()
        : path(std::filesystem::temp_directory_path() /
               ("assay-test-" + std::to_string(getpid()) + "-" + std::to_string(++count))) {
        std::filesystem::remove(path);
    }
    explicit TemporaryFile(std::string_view bytes) : TemporaryFile() {
        std::ofstream(path, std::ios::binary) << bytes;
    }
    TemporaryFile(const TemporaryFile&) = delete;
    ~TemporaryFile() { std::filesystem::remove(path); }

    const std::filesystem::path path;

private:
    static inline int count = 0;
};

inline std::string packed_by_zstd(std::string_view text) {
    std::string packed(ZSTD_compressBound(text.size()), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 1));
    return packed;
}

}  // namespace assay::heap
