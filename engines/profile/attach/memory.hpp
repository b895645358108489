// Reads and writes the memory of another process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>

namespace assay::attach {

// Access to the memory of the program that the process runs now. After an exec all accesses fail.
class Memory {
public:
    explicit Memory(pid_t pid);  // throws Error
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    void write(std::uint64_t address, std::span<const char> bytes) const;  // throws Error
    // Reads a zero-terminated string, at most `max_bytes` of it.
    std::string text(std::uint64_t address, std::size_t max_bytes) const;
    bool is_mapped(std::uint64_t address) const;
    // Reads a value. Returns a zero-initialised one if the address cannot be read.
    template <class T>
    T get(std::uint64_t address) const {
        T value{};
        read(address, {reinterpret_cast<char*>(&value), sizeof value});
        return value;
    }
    template <class T>
    void put(std::uint64_t address, const T& value) const {  // throws Error
        write(address, {reinterpret_cast<const char*>(&value), sizeof value});
    }

private:
    bool read(std::uint64_t address, std::span<char> buffer) const;

    int fd_;
};

}  // namespace assay::attach
