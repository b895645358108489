// The list of libraries in LD_PRELOAD.
#include "preload/libraries.hpp"

#include <doctest/doctest.h>

using assay::preload::with_library;

TEST_CASE("a library precedes the user's own and follows those of sanitizers") {
    CHECK(with_library("/a.so", nullptr) == "/a.so");
    CHECK(with_library("/a.so", "") == "/a.so");
    CHECK(with_library("/a.so", "/x.so /y.so:") == "/a.so:/x.so:/y.so");
    CHECK(with_library("/a.so", "/x.so:/usr/lib/libasan.so.8") ==
          "/usr/lib/libasan.so.8:/a.so:/x.so");
    CHECK(with_library("/a.so", "libclang_rt.asan-x86_64.so") ==
          "libclang_rt.asan-x86_64.so:/a.so");
}
