// What a fuzz target offers: a function that takes any bytes, and inputs to begin with.
//
// The function has libFuzzer's name and signature: with clang it links with -fsanitize=fuzzer in
// place of driver.cpp, which mutates without looking at coverage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using Input = std::vector<std::uint8_t>;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
std::vector<Input> planted_inputs();

namespace fuzz {

// The path of a file in memory that holds these bytes; each call replaces the file before.
std::string file_of(const void* data, std::size_t size);
// A path beside it where no file is.
std::string free_path();

inline Input input_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace fuzz
