// The fix of a missing part is for the way in which Assay was installed.
#include "core/origin.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

TEST_CASE("a missing part comes back as it came") {
    const auto checkout =
        std::filesystem::temp_directory_path() / ("assay-origin-test-" + std::to_string(getpid()));
    std::filesystem::create_directories(checkout);
    std::ofstream(checkout / "CMakeLists.txt") << "\n";
    CHECK(assay::repair(checkout / "build/bin/assay-heap") == "make setup");
    std::filesystem::remove_all(checkout);
    CHECK(assay::repair("/usr/lib/assay/lib/python3.11/site-packages/assay/bin/assay-heap") ==
          "apt-get install --reinstall ./assay_*.deb");
    CHECK(assay::repair("/nowhere/lib/python3.13/site-packages/assay/bin/assay-heap") ==
          "pip install --force-reinstall ./assay-*.whl");
}
