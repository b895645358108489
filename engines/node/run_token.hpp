// The option and the reader of the token with which the two sides of a measurement recognise each
// other (session/token.hpp).
#pragma once

#include <optional>
#include <string>

#include "core/registry.hpp"
#include "session/token.hpp"

namespace assay::node {

inline constexpr Parameter token_parameter{
    "token", Kind::text, "", "",
    "the secret that both sides share: a file of mode 0600 with 64 hexadecimal digits, or - for a "
    "line of standard input; without it any program that reaches the port can be the other side"};

// Reads the token from a file that nobody else can read, or from standard input ("-", within 10 s).
// None if `source` is empty. Throws Error if the file is not private or holds no token.
std::optional<session::Token> read_run_token(const std::string& source);

}  // namespace assay::node
