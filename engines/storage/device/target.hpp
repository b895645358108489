// The target of a measurement: a temporary file in a folder, an existing file, or a /dev/dax
// device.
#pragma once

#include <cstddef>
#include <string>

namespace assay::storage {

class Target {
public:
    // Throws Error for any other path, if there is less space than `bytes`, or if existing data
    // would be overwritten without `overwrite`.
    Target(const std::string& path, std::size_t bytes, bool writes, bool overwrite);
    ~Target() { release(); }
    Target(const Target&) = delete;
    Target& operator=(const Target&) = delete;

    const std::string& path() const { return path_; }
    const std::string& kind() const { return kind_; }  // the file system's name, or "devdax"
    std::size_t bytes() const { return bytes_; }
    bool is_device() const { return is_device_; }
    bool is_filled() const { return filled_; }  // with the test data of data.hpp
    int descriptor() const { return descriptor_; }
    int direct_descriptor() const { return direct_descriptor_; }  // with O_DIRECT; -1: see below
    // Why the target cannot be opened with O_DIRECT.
    const std::string& direct_unavailable() const { return direct_unavailable_; }
    std::byte* mapping() const { return mapping_; }

private:
    void open_folder();
    void open_file(bool writes, bool overwrite);
    void open_device(bool writes, bool overwrite);
    void open_direct();
    void map(bool writes);
    void fill();
    void release();

    std::string path_, kind_, direct_unavailable_;
    std::size_t bytes_;
    bool is_device_ = false, is_temporary_ = false, filled_ = false;
    int descriptor_ = -1, direct_descriptor_ = -1;
    std::byte* mapping_ = nullptr;
};

}  // namespace assay::storage
