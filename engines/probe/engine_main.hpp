// The main of an executable with a table of measurements: assay-probe, built once for each MPI, and
// assay-io-bench.
//
//   assay-probe --describe                     prints its measurements, as JSON
//   assay-probe --identity                     prints this host's names and addresses, as JSON
//   assay-probe --check-transport NAME         checks that a transport can be used on this host
//   assay-probe run NAME [--param value ...]   measures; writes records to standard output
//
// Exit codes: 0 measured, 2 bad input or not runnable here.
#pragma once

#include <span>
#include <string_view>

#include "core/registry.hpp"

namespace assay {

// `program` is the executable's name in its messages.
int engine_main(std::string_view program, std::span<const Measurement> table, int argc,
                char** argv);

}  // namespace assay
