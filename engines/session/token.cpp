// Makes a run's token and converts it to and from text.
#include "session/token.hpp"

#include <sys/random.h>

namespace assay::session {
namespace {

constexpr std::string_view hex_digits = "0123456789abcdef";

}  // namespace

std::optional<Token> make_token() {
    Token token;
    if (getrandom(token.bytes.data(), token.bytes.size(), 0) !=
        static_cast<ssize_t>(token.bytes.size()))
        return std::nullopt;
    return token;
}

std::string to_text(const Token& token) {
    std::string text;
    for (const unsigned char byte : token.bytes) {
        text += hex_digits[byte >> 4];
        text += hex_digits[byte & 15];
    }
    return text;
}

std::optional<Token> token_from(std::string_view text) {
    Token token;
    if (text.size() != 2 * token.bytes.size()) return std::nullopt;
    for (std::size_t k = 0; k < token.bytes.size(); ++k) {
        const auto high = hex_digits.find(text[2 * k]), low = hex_digits.find(text[2 * k + 1]);
        if (high == hex_digits.npos || low == hex_digits.npos) return std::nullopt;
        token.bytes[k] = static_cast<unsigned char>(high << 4 | low);
    }
    return token;
}

}  // namespace assay::session
