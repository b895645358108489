// The memory of another process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>

namespace assay::attach {

// Of the program that the process runs now: after an exec nothing can be read or written any more.
class Memory {
public:
    explicit Memory(pid_t pid);  // throws Error
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    void write(std::uint64_t at, std::span<const char> bytes) const;  // throws Error
    std::string text(std::uint64_t at, std::size_t most) const;       // up to a zero
    bool is_there(std::uint64_t at) const;                            // something is mapped
    template <class T>
    T get(std::uint64_t at) const {
        T value{};
        read(at, {reinterpret_cast<char*>(&value), sizeof value});
        return value;
    }
    template <class T>
    void put(std::uint64_t at, const T& value) const {
        write(at, {reinterpret_cast<const char*>(&value), sizeof value});
    }

private:
    bool read(std::uint64_t at, std::span<char> into) const;

    int fd_;
};

}  // namespace assay::attach
