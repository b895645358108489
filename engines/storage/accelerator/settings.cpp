// Reads the settings of the accelerator from the environment variables ASSAY_IO_*.
#include "storage/accelerator/settings.hpp"

#include <fnmatch.h>
#include <xxhash.h>

#include <cstdlib>
#include <cstring>

#include "storage/store/kept.hpp"

namespace assay::storage {
namespace {

std::string environment_variable(const char* name) {
    const char* text = std::getenv(name);
    return text ? text : "";
}

// Parses a size such as 512M or 64GiB; units are powers of 1024. Returns false if it is invalid.
bool parse_bytes(const std::string& text, std::uint64_t& result) {
    char* rest = nullptr;
    const double number = std::strtod(text.c_str(), &rest);
    if (rest == text.c_str() || number < 0) return false;
    while (*rest == ' ') ++rest;
    int power = 0;
    const std::string unit = rest;
    if (unit.empty() || unit == "B") power = 0;
    else {
        static const char letters[] = "kmgtp";
        const char* letter = std::strchr(letters, unit[0] | 0x20);
        const std::string unit_rest = unit.substr(1);
        if (!letter ||
            !(unit_rest.empty() || unit_rest == "B" || unit_rest == "iB" || unit_rest == "b"))
            return false;
        power = static_cast<int>(letter - letters) + 1;
    }
    double factor = 1;
    for (int k = 0; k < power; ++k) factor *= 1024;
    result = static_cast<std::uint64_t>(number * factor);
    return true;
}

template <class Number>
void read_number(const char* name, Number& result, std::string& error) {
    const std::string text = environment_variable(name);
    if (text.empty()) return;
    char* rest = nullptr;
    const double read = std::strtod(text.c_str(), &rest);
    if (*rest || read < 0 || read > 1e6)
        error = std::string(name) + "=" + text + ": a number is expected";
    else result = static_cast<Number>(read);
}

void read_flag(const char* name, bool& result, std::string& error) {
    const std::string text = environment_variable(name);
    if (text == "1" || text == "yes" || text == "true") result = true;
    else if (text == "0" || text == "no" || text == "false") result = false;
    else if (!text.empty()) error = std::string(name) + "=" + text + ": 1 or 0 is expected";
}

std::vector<std::string> split_patterns(const std::string& text) {
    std::vector<std::string> patterns;
    for (std::size_t from = 0; from < text.size();) {
        const auto to = std::min(text.find(':', from), text.size());
        if (to > from) patterns.push_back(text.substr(from, to - from));
        from = to + 1;
    }
    return patterns;
}

}  // namespace

Settings Settings::from_environment() {
    Settings settings;
    settings.file_patterns = split_patterns(environment_variable("ASSAY_IO_FILES"));
    if (const auto text = environment_variable("ASSAY_IO_STORE"); !text.empty())
        settings.store = text;
    if (const auto text = environment_variable("ASSAY_IO_SIZE");
        !text.empty() && !parse_bytes(text, settings.size))
        settings.error = "ASSAY_IO_SIZE=" + text + ": a size such as 512M or 64G is expected";
    const auto consistency = environment_variable("ASSAY_IO_CONSISTENCY");
    if (consistency == "collective") settings.visibility = Visibility::collective;
    else if (consistency == "commit") settings.visibility = Visibility::commit;
    else if (!consistency.empty() && consistency != "immediate")
        settings.error =
            "ASSAY_IO_CONSISTENCY=" + consistency + ": immediate, collective or commit is expected";
    const auto until = environment_variable("ASSAY_IO_UNTIL");
    settings.until_memory = until == "memory";
    if (!until.empty() && until != "memory" && until != "file")
        settings.error = "ASSAY_IO_UNTIL=" + until + ": memory or file is expected";
    for (const char* removed : {"ASSAY_IO_DETACH", "ASSAY_IO_SYNC"})
        if (!environment_variable(removed).empty())
            settings.error =
                std::string(removed) + " is not used any more: set ASSAY_IO_UNTIL=memory";
    read_number("ASSAY_IO_RETRY", settings.retry_s, settings.error);
    settings.keep = environment_variable("ASSAY_IO_KEEP");
    if (!settings.keep.empty() && !is_valid_store_name(settings.keep))
        settings.error = "ASSAY_IO_KEEP=" + settings.keep +
                         ": a name of at most 32 letters, digits and ._- is expected";
    read_number("ASSAY_IO_WAIT", settings.wait_s, settings.error);
    settings.drain_program = environment_variable("ASSAY_IO_DRAIN_PROGRAM");
    read_flag("ASSAY_IO_DIRECT", settings.direct, settings.error);
    read_flag("ASSAY_IO_REQUIRE", settings.required, settings.error);
    read_number("ASSAY_IO_DRAIN_THREADS", settings.drain_threads, settings.error);
    read_number("ASSAY_IO_DRAIN_LAG", settings.drain_lag_ms, settings.error);
    read_number("ASSAY_IO_WARM", settings.prefault_seconds, settings.error);
    read_number("ASSAY_IO_RANKS_PER_NODE", settings.ranks_per_node, settings.error);
    settings.interface = environment_variable("ASSAY_IO_INTERFACE");
    settings.job = environment_variable("ASSAY_IO_JOB");
    return settings;
}

bool Settings::covers(const std::string& name) const {
    const auto slash = name.rfind('/');
    const std::string file_name = slash == std::string::npos ? name : name.substr(slash + 1);
    bool covered = file_patterns.empty() || file_patterns.front()[0] == '!';
    for (const auto& pattern : file_patterns) {
        const bool excludes = pattern[0] == '!';
        const char* glob = pattern.c_str() + excludes;
        if (fnmatch(glob, name.c_str(), 0) == 0 || fnmatch(glob, file_name.c_str(), 0) == 0)
            covered = !excludes;
    }
    return covered;
}

std::uint64_t Settings::digest() const {
    std::string text = store + '\n' + std::to_string(size) + '\n' + interface + '\n' + job + '\n' +
                       keep + '\n' + error;
    for (const auto& pattern : file_patterns) text += '\n' + pattern;
    for (const auto number : {static_cast<int>(visibility), int{until_memory}, int{required},
                              int{direct}, static_cast<int>(ranks_per_node)})
        text += '\n' + std::to_string(number);
    return XXH3_64bits(text.data(), text.size()) >> 1;
}

}  // namespace assay::storage
