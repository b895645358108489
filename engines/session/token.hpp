// The secret token of a run. A process that knows it belongs to the run; in the handshake
// (handshake.hpp) a caller proves that without sending the token.
//
// A launcher hands it to both sides: to an MPI job through MPI, to others in a file of mode 0600 or
// in the environment. A command line would show it to every user of the host.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace assay::session {

struct Token {
    std::array<unsigned char, 32> bytes{};
};

// A random token; none if the kernel provides no random numbers.
std::optional<Token> make_token();
// The text of a token is 64 hexadecimal digits, in lower case. token_from() returns none for any
// other text.
std::string to_text(const Token& token);
std::optional<Token> token_from(std::string_view text);

}  // namespace assay::session
