#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "fuzz.hpp"

namespace fuzz {
namespace {

// A folder of this process, removed at its end.
struct Folder {
    Folder()
        : path(std::filesystem::is_directory("/dev/shm") ? "/dev/shm/assay-fuzz-XXXXXX"
                                                         : "/tmp/assay-fuzz-XXXXXX") {
        if (mkdtemp(path.data()) == nullptr) std::abort();
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    std::string path;
};

const Folder& folder() {
    static const Folder made;
    return made;
}

}  // namespace

std::string file_of(const void* data, std::size_t size) {
    const std::string path = folder().path + "/input";
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr || std::fwrite(data, 1, size, file) != size) std::abort();
    std::fclose(file);
    return path;
}

std::string free_path() {
    const std::string path = folder().path + "/free";
    unlink(path.c_str());
    return path;
}

}  // namespace fuzz
