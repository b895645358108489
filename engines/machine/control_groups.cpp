// Finds the folders of this process's control groups. A mount may show a part of a hierarchy only
// (the field ROOT of mountinfo), as in a container; then a group's path is relative to that part.
#include "machine/control_groups.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace assay {
namespace {

constexpr std::size_t path_bytes = 8192;

// The lines of a file of any length. A line that is longer than the buffer is left out: no path
// that the kernel takes (PATH_MAX) is.
class Lines {
public:
    explicit Lines(const char* path) : fd_(open(path, O_RDONLY | O_CLOEXEC)) {}
    ~Lines() {
        if (fd_ >= 0) close(fd_);
    }
    Lines(const Lines&) = delete;
    Lines& operator=(const Lines&) = delete;

    // The next line without its end, which the caller may change; null after the last one.
    char* next() {
        for (;;) {
            char* line = text_ + begin_;
            if (auto* end = static_cast<char*>(std::memchr(line, '\n', end_ - begin_))) {
                *end = 0;
                begin_ = static_cast<std::size_t>(end - text_) + 1;
                if (!is_cut_) return line;
                is_cut_ = false;
            } else if (!fill()) {
                const bool is_last = begin_ < end_ && !is_cut_;
                text_[end_] = 0;
                line = text_ + begin_;
                begin_ = end_;
                return is_last ? line : nullptr;
            }
        }
    }

private:
    // Reads more behind the started line; false at the end of the file.
    bool fill() {
        std::memmove(text_, text_ + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
        if (end_ == sizeof text_ - 1) {
            is_cut_ = true;
            end_ = 0;
        }
        const ssize_t n = fd_ < 0 ? 0 : read(fd_, text_ + end_, sizeof text_ - 1 - end_);
        if (n > 0) end_ += static_cast<std::size_t>(n);
        return n > 0;
    }

    int fd_;
    std::size_t begin_ = 0, end_ = 0;
    bool is_cut_ = false;
    char text_[4 * path_bytes];
};

// Whether `name` is one of the names in `list`, which commas separate.
bool has_name(const char* list, const char* name) {
    const std::size_t length = std::strlen(name);
    for (const char* found = list; (found = std::strstr(found, name)) != nullptr; found += length)
        if ((found == list || found[-1] == ',') && (found[length] == 0 || found[length] == ','))
            return true;
    return false;
}

// Replaces "\040" by a space, in place: the kernel writes spaces and backslashes of paths so.
void unescape(char* text) {
    const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
    char* out = text;
    for (const char* in = text; *in != 0; ++out) {
        if (in[0] == '\\' && is_octal(in[1]) && is_octal(in[2]) && is_octal(in[3])) {
            *out = static_cast<char>((in[1] - '0') * 64 + (in[2] - '0') * 8 + (in[3] - '0'));
            in += 4;
        } else {
            *out = *in++;
        }
    }
    *out = 0;
}

struct Mount {
    const char* part;   // of the hierarchy; "/" for all of it
    const char* point;  // the folder
};

// Reads a line of mountinfo, "ID PARENT DEVICE PART POINT OPTIONS ... - TYPE SOURCE OPTIONS" (man 5
// proc). False if it is none of that hierarchy.
bool read_mount(char* line, const char* controller, bool is_unified, Mount& mount) {
    char* rest = line;
    char* fields[5] = {};
    for (char*& field : fields)
        if ((field = strtok_r(nullptr, " ", &rest)) == nullptr) return false;
    const char* word = nullptr;
    do word = strtok_r(nullptr, " ", &rest);
    while (word != nullptr && std::strcmp(word, "-") != 0);
    const char* type = strtok_r(nullptr, " ", &rest);
    const char* source = strtok_r(nullptr, " ", &rest);
    const char* options = strtok_r(nullptr, " ", &rest);
    if (word == nullptr || type == nullptr || source == nullptr || options == nullptr) return false;
    if (is_unified ? std::strcmp(type, "cgroup2") != 0
                   : std::strcmp(type, "cgroup") != 0 || !has_name(options, controller))
        return false;
    unescape(fields[3]);
    unescape(fields[4]);
    mount = {fields[3], fields[4]};
    return true;
}

// The path of a group within a part of the hierarchy; null if it is not in it.
const char* path_within(const char* group, const char* part) {
    if (std::strcmp(part, "/") == 0) return group;
    const std::size_t length = std::strlen(part);
    const bool is_in =
        std::strncmp(group, part, length) == 0 && (group[length] == 0 || group[length] == '/');
    return is_in ? group + length : nullptr;
}

struct Search {
    const char* root;
    const char* controller;
    VisitGroup visit;
    void* data;

    // The group and those above it, below a mount point.
    void visit_groups(const char* point, const char* group, bool is_unified) const {
        char folder[path_bytes];
        const int base = std::snprintf(folder, sizeof folder, "%s%s", root, point);
        const int whole = base + std::snprintf(folder + base, sizeof folder - std::size_t(base),
                                               "%s", std::strcmp(group, "/") == 0 ? "" : group);
        if (whole >= int(sizeof folder)) return;
        for (;;) {
            visit(data, folder, is_unified);
            char* slash = std::strrchr(folder, '/');
            if (slash == nullptr || slash < folder + base) return;
            *slash = 0;
        }
    }

    // Visits the groups below the mount points that show the group, or, with `is_anywhere`, below
    // all of its hierarchy. Returns whether there are any.
    bool visit_mounts(const char* group, bool is_unified, bool is_anywhere) const {
        char path[path_bytes];
        std::snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
        Lines lines(path);
        bool is_found = false;
        for (char* line = lines.next(); line != nullptr; line = lines.next()) {
            Mount mount{};
            if (!read_mount(line, controller, is_unified, mount)) continue;
            const char* within = is_anywhere ? group : path_within(group, mount.part);
            if (within == nullptr) continue;
            visit_groups(mount.point, within, is_unified);
            is_found = true;
        }
        return is_found;
    }
};

}  // namespace

void for_each_group(const char* root, const char* controller, VisitGroup visit, void* data) {
    const Search search{root, controller, visit, data};
    char path[path_bytes];
    std::snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    Lines lines(path);
    // A line is "0::PATH" for version 2 and "NUMBER:CONTROLLERS:PATH" for version 1.
    for (char* line = lines.next(); line != nullptr; line = lines.next()) {
        char* controllers = std::strchr(line, ':');
        char* group = controllers == nullptr ? nullptr : std::strchr(controllers + 1, ':');
        if (group == nullptr) continue;
        *group++ = 0;
        const bool is_unified = *++controllers == 0;
        if (!is_unified && !has_name(controllers, controller)) continue;
        if (search.visit_mounts(group, is_unified, false) ||
            search.visit_mounts(group, is_unified, true))
            continue;
        char point[path_bytes];
        std::snprintf(point, sizeof point, "/sys/fs/cgroup%s%s", is_unified ? "" : "/",
                      is_unified ? "" : controller);
        search.visit_groups(point, group, is_unified);
    }
}

}  // namespace assay
