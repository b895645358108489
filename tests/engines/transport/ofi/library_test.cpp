// Tests of how libfabric is loaded.
#include "transport/ofi/library.hpp"

#ifdef ASSAY_LIBFABRIC

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

TEST_CASE("over tcp no message is fetched after it was announced, unless the environment says so") {
    if (std::ranges::count(assay::ofi::providers(), "tcp") == 0) return;
    const auto limit = [] { return std::string(std::getenv("FI_OFI_RXM_EAGER_LIMIT")); };
    setenv("FI_OFI_RXM_EAGER_LIMIT", "4096", 1);
    assay::ofi::find_provider("tcp", "");
    CHECK(limit() == "4096");
    unsetenv("FI_OFI_RXM_EAGER_LIMIT");
    assay::ofi::find_provider("tcp", "");
    CHECK(limit() == "262144");
    unsetenv("FI_OFI_RXM_EAGER_LIMIT");
}

#endif
