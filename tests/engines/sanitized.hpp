// Whether the tests are compiled with AddressSanitizer, which has memory and stack frames of its
// own.
#pragma once

namespace assay {

#ifdef __SANITIZE_ADDRESS__
constexpr bool is_sanitized = true;
#else
constexpr bool is_sanitized = false;
#endif

}  // namespace assay
