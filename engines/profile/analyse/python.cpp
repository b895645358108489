#include "profile/analyse/python.hpp"

#include <sstream>

namespace assay::heap {

void Python::read(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields(line);
        std::string what;
        fields >> what;
        if (what == "place") {
            std::uint32_t number = 0;
            Place place{"", "", 0, "", false};
            fields >> number >> place.line;
            fields.get();
            if (!std::getline(fields, place.file, '\t') || !std::getline(fields, place.function))
                continue;
            place.module = place.file;  // functions of one name in two files are two
            places.try_emplace(number, std::move(place));
        } else if (what == "eval") {
            std::uint64_t address = 0;
            if (fields >> std::hex >> address) evals.insert(address);
        } else if (what == "unread") {
            std::getline(fields >> std::ws, unread);
        }
    }
}

}  // namespace assay::heap
