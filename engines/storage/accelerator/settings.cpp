#include "storage/accelerator/settings.hpp"

#include <fnmatch.h>
#include <xxhash.h>

#include <cstdlib>
#include <cstring>

namespace assay::storage {
namespace {

std::string value(const char* name) {
    const char* text = std::getenv(name);
    return text ? text : "";
}

bool bytes(const std::string& text, std::uint64_t& into) {
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
        const std::string tail = unit.substr(1);
        if (!letter || !(tail.empty() || tail == "B" || tail == "iB" || tail == "b")) return false;
        power = static_cast<int>(letter - letters) + 1;
    }
    double factor = 1;
    for (int k = 0; k < power; ++k) factor *= 1024;
    into = static_cast<std::uint64_t>(number * factor);
    return true;
}

template <class Number>
void number(const char* name, Number& into, std::string& wrong) {
    const std::string text = value(name);
    if (text.empty()) return;
    char* rest = nullptr;
    const double read = std::strtod(text.c_str(), &rest);
    if (*rest || read < 0 || read > 1e6)
        wrong = std::string(name) + "=" + text + ": a number is expected";
    else into = static_cast<Number>(read);
}

void flag(const char* name, bool& into, std::string& wrong) {
    const std::string text = value(name);
    if (text == "1" || text == "yes" || text == "true") into = true;
    else if (text == "0" || text == "no" || text == "false") into = false;
    else if (!text.empty()) wrong = std::string(name) + "=" + text + ": 1 or 0 is expected";
}

std::vector<std::string> parts(const std::string& text) {
    std::vector<std::string> found;
    for (std::size_t from = 0; from < text.size();) {
        const auto to = std::min(text.find(':', from), text.size());
        if (to > from) found.push_back(text.substr(from, to - from));
        from = to + 1;
    }
    return found;
}

}  // namespace

Settings Settings::from_environment() {
    Settings of;
    of.files = parts(value("ASSAY_IO_FILES"));
    if (const auto text = value("ASSAY_IO_STORE"); !text.empty()) of.store = text;
    if (const auto text = value("ASSAY_IO_SIZE"); !text.empty() && !bytes(text, of.size))
        of.wrong = "ASSAY_IO_SIZE=" + text + ": a size such as 512M or 64G is expected";
    const auto consistency = value("ASSAY_IO_CONSISTENCY");
    if (consistency == "collective") of.visibility = Visibility::collective;
    else if (consistency == "commit") of.visibility = Visibility::commit;
    else if (!consistency.empty() && consistency != "immediate")
        of.wrong =
            "ASSAY_IO_CONSISTENCY=" + consistency + ": immediate, collective or commit is expected";
    const auto transport = value("ASSAY_IO_TRANSPORT");
    if (transport == "rma") of.reach = Reach::rma;
    else if (transport == "service") of.reach = Reach::service;
    else if (!transport.empty() && transport != "auto")
        of.wrong = "ASSAY_IO_TRANSPORT=" + transport + ": auto, service or rma is expected";
    flag("ASSAY_IO_DETACH", of.detach, of.wrong);
    const auto sync = value("ASSAY_IO_SYNC");
    of.stored = sync.empty() ? !of.detach : sync == "stored";
    if (!sync.empty() && sync != "visible" && sync != "stored")
        of.wrong = "ASSAY_IO_SYNC=" + sync + ": stored or visible is expected";
    flag("ASSAY_IO_REQUIRE", of.strict, of.wrong);
    number("ASSAY_IO_DRAIN_THREADS", of.drain_threads, of.wrong);
    number("ASSAY_IO_DRAIN_LAG", of.drain_lag_ms, of.wrong);
    number("ASSAY_IO_WARM", of.warm, of.wrong);
    number("ASSAY_IO_RANKS_PER_NODE", of.ranks_per_node, of.wrong);
    of.interface = value("ASSAY_IO_INTERFACE");
    of.job = value("ASSAY_IO_JOB");
    return of;
}

bool Settings::covers(const std::string& name) const {
    const auto slash = name.rfind('/');
    const std::string last = slash == std::string::npos ? name : name.substr(slash + 1);
    bool covered = files.empty() || files.front()[0] == '!';
    for (const auto& pattern : files) {
        const bool out = pattern[0] == '!';
        const char* glob = pattern.c_str() + out;
        if (fnmatch(glob, name.c_str(), 0) == 0 || fnmatch(glob, last.c_str(), 0) == 0)
            covered = !out;
    }
    return covered;
}

std::uint64_t Settings::digest() const {
    std::string all =
        store + '\n' + std::to_string(size) + '\n' + interface + '\n' + job + '\n' + wrong;
    for (const auto& pattern : files) all += '\n' + pattern;
    for (const auto choice : {static_cast<int>(visibility), static_cast<int>(reach), int{detach},
                              int{stored}, int{strict}, static_cast<int>(ranks_per_node)})
        all += '\n' + std::to_string(choice);
    return XXH3_64bits(all.data(), all.size()) >> 1;
}

}  // namespace assay::storage
