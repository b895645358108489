// A thread that reads lines, and the end of the process with its launcher.
#include "transport/direct/launcher_lines.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <thread>
#include <utility>

namespace assay::direct {
namespace {

constexpr std::size_t longest_line = 1 << 26;
constexpr useconds_t end_grace_us = 3'000'000;

}  // namespace

std::shared_ptr<LauncherLines> LauncherLines::read_from(int descriptor) {
    auto lines = std::make_shared<LauncherLines>();
    std::thread([lines, descriptor] {
        std::array<char, 65536> bytes;
        for (;;) {
            const ssize_t n = read(descriptor, bytes.data(), bytes.size());
            if (n > 0) lines->add({bytes.data(), static_cast<std::size_t>(n)});
            if (n > 0 || (n < 0 && errno == EINTR)) continue;
            kill(getpid(), SIGTERM);
            usleep(end_grace_us);
            _exit(130);
        }
    }).detach();
    return lines;
}

void LauncherLines::add(std::string_view bytes) {
    const std::scoped_lock lock(mutex_);
    while (!bytes.empty()) {
        const std::size_t end = bytes.find('\n');
        too_long_ = too_long_ || begun_.size() + std::min(end, bytes.size()) > longest_line;
        if (too_long_) begun_.clear();
        else begun_ += bytes.substr(0, end);
        if (end == std::string_view::npos) return;
        if (!std::exchange(too_long_, false)) lines_.push_back(std::exchange(begun_, {}));
        bytes.remove_prefix(end + 1);
    }
}

std::optional<std::string> LauncherLines::take() {
    const std::scoped_lock lock(mutex_);
    if (lines_.empty()) return std::nullopt;
    std::string line = std::move(lines_.front());
    lines_.pop_front();
    return line;
}

}  // namespace assay::direct
