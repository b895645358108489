// The secret of a run. Whoever knows it belongs to the run; see handshake.hpp for how a caller
// proves that without sending it.
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

// Random. None: the kernel has no random numbers.
std::optional<Token> make_token();
// 64 hexadecimal digits.
std::string to_text(const Token& token);
std::optional<Token> token_from(std::string_view text);

}  // namespace assay::session
