// Splits text at a separator, and makes text of others safe to print.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/unsafe_text.hpp"

namespace assay {

// Returns the parts between separators, empty parts included. "a,,b" has the parts "a", "" and "b";
// "" has one empty part.
inline std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(separator, begin), text.size());
        parts.emplace_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

// The text with '?' in place of unsafe characters (unsafe_text.hpp). It is applied to all names of
// hosts and files, and to all text of other programs, that are printed.
inline std::string printable(const std::string& text) {
    std::string shown;
    for (std::size_t k = 0; k < text.size();) {
        const std::size_t unsafe = unsafe_bytes(text.data() + k, text.size() - k);
        shown += unsafe ? '?' : text[k];
        k += unsafe ? unsafe : 1;
    }
    return shown;
}

}  // namespace assay
