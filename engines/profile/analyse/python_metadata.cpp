// Parses the Python lines of a trace.
#include "profile/analyse/python_metadata.hpp"

#include <sstream>

namespace assay::heap {

void PythonMetadata::parse(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields(line);
        std::string keyword;
        fields >> keyword;
        if (keyword == "place") {
            std::uint32_t number = 0;
            Location location{"", "", 0, "", false};
            fields >> number >> location.line;
            fields.get();
            if (!std::getline(fields, location.file, '\t') ||
                !std::getline(fields, location.function))
                continue;
            // Distinguishes functions of the same name in two files.
            location.module = location.file;
            locations.try_emplace(number, std::move(location));
        } else if (keyword == "eval") {
            std::uint64_t address = 0;
            if (fields >> std::hex >> address) eval_addresses.insert(address);
        } else if (keyword == "unread") {
            std::getline(fields >> std::ws, unsupported_version);
        }
    }
}

}  // namespace assay::heap
