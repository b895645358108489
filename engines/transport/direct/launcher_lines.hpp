// What the launcher writes to a rank's standard input after the table of peers: lines for the
// measurement. The launcher keeps it open until the launcher ends; then nobody reads the results,
// and this process ends too.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace assay::direct {

class LauncherLines {
public:
    // Reads the descriptor in a thread of its own from now on.
    static std::shared_ptr<LauncherLines> read_from(int descriptor);

    // The next whole line, if there is one.
    std::optional<std::string> take();

    // Bytes that were read, for the thread and for tests. A line that is too long is left out.
    void add(std::string_view bytes);

private:
    std::mutex mutex_;
    std::deque<std::string> lines_;
    std::string begun_;  // the line that has not ended
    bool too_long_ = false;
};

}  // namespace assay::direct
