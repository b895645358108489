// Writes a recording: one JSON array per line, whose first element names the row. The rows are
// defined in python/assay/numa/recording.py.
//
// It also runs inside the profiled program, so it allocates nothing: a buffer in the object
// collects the output. Bytes of a name below 0x20 or above 0x7e are written as \u0000 to \u00ff, so
// that any path gives valid JSON; the reader converts them back into bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace assay::numa {

inline constexpr int recording_version = 1;

// A string field of a row.
struct Text {
    const char* data;
    std::size_t size;
    explicit Text(const char* text) : data(text), size(std::strlen(text)) {}
    Text(const char* text, std::size_t bytes) : data(text), size(bytes) {}
};

template <class T>
struct List {
    const T* data;
    std::size_t size;
};

class Lines {
public:
    explicit Lines(int fd) : fd_(fd) {}
    ~Lines() { flush(); }
    Lines(const Lines&) = delete;
    Lines& operator=(const Lines&) = delete;

    template <class... Fields>
    void write(const char* row, const Fields&... fields) {
        put("[\"", 2);
        put(row, std::strlen(row));
        put("\"", 1);
        (field(fields), ...);
        put("]\n", 2);
    }
    void flush();
    bool failed() const {
        return failed_;
    }  // the file is incomplete, e.g. because the disk is full

private:
    template <class T>
    void field(const T& value) {
        put(",", 1);
        add(value);
    }
    void add(std::int64_t value);
    void add(std::uint64_t value);
    void add(int value) { add(static_cast<std::int64_t>(value)); }
    void add(unsigned value) { add(static_cast<std::uint64_t>(value)); }
    void add(const Text& text);
    template <class T>
    void add(const List<T>& list) {
        put("[", 1);
        for (std::size_t k = 0; k < list.size; ++k) {
            if (k > 0) put(",", 1);
            add(list.data[k]);
        }
        put("]", 1);
    }
    void put(const char* bytes, std::size_t count);

    int fd_;
    bool failed_ = false;
    std::size_t used_ = 0;
    char buffer_[8192];
};

}  // namespace assay::numa
