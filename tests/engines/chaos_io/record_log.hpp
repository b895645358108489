// A rank's log of its operations in a chaos run. Each line is one write() with O_APPEND, so the log
// has every line that was complete when the rank was killed. NS: CLOCK_MONOTONIC in ns.
//
//     start OPERATION NS
//     end OPERATION NS ERROR_CLASS BYTES     BYTES: read or written
//     skip OPERATION NS                      the file is not open
//     note TEXT NS
#pragma once

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace chaos {

inline void append(int fd, const void* data, std::size_t bytes) {
    if (write(fd, data, bytes) == static_cast<ssize_t>(bytes)) return;
    std::perror("chaos_io: log");
    std::abort();
}

inline int open_log(const std::string& path) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0) return fd;
    std::perror(path.c_str());
    std::exit(2);
}

class RecordLog {
public:
    void open(const std::string& folder, int rank) {
        lines_ = open_log(folder + "/log." + std::to_string(rank));
        reads_ = open_log(folder + "/read." + std::to_string(rank));
    }
    void start(int operation) const { line("start %d %ld\n", operation, now()); }
    void end(int operation, int error_class, long bytes = 0) const {
        line("end %d %ld %d %ld\n", operation, now(), error_class, bytes);
    }
    void skip(int operation) const { line("skip %d %ld\n", operation, now()); }
    void note(const char* text) const { line("note %s %ld\n", text, now()); }
    // Stores the data that a read has returned. The reads of a rank follow each other in one file.
    void data(const char* bytes, long count) const {
        if (count > 0) append(reads_, bytes, static_cast<std::size_t>(count));
    }

private:
    static long now() {
        timespec time{};
        clock_gettime(CLOCK_MONOTONIC, &time);
        return time.tv_sec * 1'000'000'000L + time.tv_nsec;
    }
    template <class... Values>
    void line(const char* format, Values... values) const {
        char text[128];
        append(lines_, text,
               static_cast<std::size_t>(std::snprintf(text, sizeof text, format, values...)));
    }

    int lines_ = -1, reads_ = -1;
};

}  // namespace chaos
