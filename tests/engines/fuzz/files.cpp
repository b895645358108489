// Temporary files for the inputs of fuzz targets, in memory if the machine has /dev/shm.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "fuzz.hpp"

namespace fuzz {
namespace {

// A temporary folder of this process, which is removed when the process exits.
struct Folder {
    Folder()
        : path(std::filesystem::is_directory("/dev/shm") ? "/dev/shm/assay-fuzz-XXXXXX"
                                                         : "/tmp/assay-fuzz-XXXXXX") {
        if (mkdtemp(path.data()) == nullptr) std::abort();
    }
    ~Folder() {
        std::error_code ignored_error;
        std::filesystem::remove_all(path, ignored_error);
    }
    std::string path;
};

const Folder& folder() {
    static const Folder instance;
    return instance;
}

}  // namespace

std::string write_input_file(const void* data, std::size_t size) {
    const std::string path = folder().path + "/input";
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr || std::fwrite(data, 1, size, file) != size) std::abort();
    std::fclose(file);
    return path;
}

std::string unused_path() {
    const std::string path = folder().path + "/free";
    unlink(path.c_str());
    return path;
}

}  // namespace fuzz
