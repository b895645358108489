// The folders of recorders that were killed: they go, and no other folder does.
#include "core/memory_folder.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>

using namespace assay;

TEST_CASE("the folder of a killed recorder is removed, those of others stay") {
    char pattern[] = "/tmp/assay-test-XXXXXX";
    REQUIRE(mkdtemp(pattern));
    const std::filesystem::path memory(pattern);
    const auto directory = [&](const char* name, std::time_t age_s) {
        std::filesystem::create_directory(memory / name);
        std::ofstream(memory / name / "arena") << "data";
        const timespec then{std::time(nullptr) - age_s, 0}, times[]{then, then};
        REQUIRE(utimensat(AT_FDCWD, (memory / name).c_str(), times, 0) == 0);
        return memory / name;
    };
    const auto killed = directory("assay-heap-killed", 100);
    const auto running = directory("assay-heap-runs", 100), young = directory("assay-heap-new", 0);
    const auto foreign = directory("heap-other", 100);
    std::filesystem::create_directory_symlink(foreign, memory / "assay-heap-link");
    const int lock = open(running.c_str(), O_RDONLY | O_DIRECTORY);
    REQUIRE(flock(lock, LOCK_EX) == 0);

    remove_abandoned_folders(memory, "assay-heap-");
    CHECK_FALSE(std::filesystem::exists(killed));
    for (const auto& kept : {running, young, foreign})
        CHECK(std::filesystem::exists(kept / "arena"));
    CHECK(std::filesystem::is_symlink(memory / "assay-heap-link"));

    close(lock);
    remove_abandoned_folders(memory, "assay-heap-");
    CHECK_FALSE(std::filesystem::exists(running));
    std::filesystem::remove_all(memory);
}

TEST_CASE("the folder of a recorder that runs is locked") {
    const MemoryFolder folder("assay-test-", "/tmp");
    const int directory = open(folder.path().c_str(), O_RDONLY | O_DIRECTORY);
    REQUIRE(directory >= 0);
    CHECK(flock(directory, LOCK_EX | LOCK_NB) != 0);
    close(directory);
}
