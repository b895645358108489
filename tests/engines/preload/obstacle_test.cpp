#include "preload/obstacle.hpp"

#include <doctest/doctest.h>
#include <elf.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace assay::preload {
namespace {

namespace fs = std::filesystem;

// The ELF header of this test's executable.
struct OwnExecutable {
    OwnExecutable() {
        std::ifstream self("/proc/self/exe", std::ios::binary);
        self.read(reinterpret_cast<char*>(&header), sizeof header);
    }
    Elf64_Ehdr header{};
};

// A folder of files, removed at its end.
struct Files {
    Files() : folder(fs::temp_directory_path() / ("assay-preload-" + std::to_string(getpid()))) {
        fs::create_directories(folder);
    }
    Files(const Files&) = delete;
    Files& operator=(const Files&) = delete;
    ~Files() { fs::remove_all(folder); }
    std::string write(const std::string& text) const {
        std::ofstream(folder / "file", std::ios::binary) << text;
        return folder / "file";
    }
    fs::path folder;
};

template <class T>
void append(std::string& file, const T& value) {
    file.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// An executable that asks a loader for these names.
std::string executable(const std::string& loader, const std::string& names) {
    constexpr std::uint64_t base = 0x400000;
    constexpr std::size_t segments = 3, dynamic_count = 3;
    constexpr std::size_t loader_offset = sizeof(Elf64_Ehdr) + segments * sizeof(Elf64_Phdr);
    const std::size_t dynamic_offset = loader_offset + loader.size() + 1,
                      names_offset = dynamic_offset + dynamic_count * sizeof(Elf64_Dyn);
    Elf64_Ehdr header = OwnExecutable().header;
    header.e_phoff = sizeof header;
    header.e_phnum = segments;
    std::string file;
    append(file, header);
    const auto add_segment = [&](std::uint32_t type, std::uint64_t offset, std::uint64_t bytes) {
        append(file, Elf64_Phdr{type, 0, offset, base + offset, 0, bytes, bytes, 1});
    };
    add_segment(PT_INTERP, loader_offset, loader.size() + 1);
    add_segment(PT_DYNAMIC, dynamic_offset, dynamic_count * sizeof(Elf64_Dyn));
    add_segment(PT_LOAD, names_offset, names.size());
    file += loader + '\0';
    append(file, Elf64_Dyn{DT_STRTAB, {base + names_offset}});
    append(file, Elf64_Dyn{DT_STRSZ, {names.size()}});
    append(file, Elf64_Dyn{DT_NULL, {0}});
    return file + names;
}

constexpr const char* glibc = "/lib64/ld-linux-x86-64.so.2";

TEST_CASE("a sanitizer's symbol is found at any offset of the names") {
    const Files files;
    CHECK(obstacle_of(files.write(executable(glibc, "libc.so.6")).c_str()) ==
          PreloadObstacle::none);
    for (std::size_t before = 4060; before < 4110; ++before) {
        const std::string names = std::string(before, 'x') + "__asan_init" + std::string(9000, 'y');
        const std::string path = files.write(executable(glibc, names));
        CHECK(obstacle_of(path.c_str()) == PreloadObstacle::address_sanitizer);
    }
}

TEST_CASE("a program that counts its own accesses is built with no sanitizer") {
    const Files files;
    for (const std::size_t between : {1, 5000}) {
        const std::string names =
            std::string("__tsan_init") + std::string(between, 0) + "libassay-numa-exact.so";
        CHECK(obstacle_of(files.write(executable(glibc, names)).c_str()) == PreloadObstacle::none);
    }
}

TEST_CASE("a truncated executable, or another machine's, is an obstacle or none") {
    const Files files;
    const std::string whole = executable("/lib/ld-musl-x86_64.so.1", "libc.so");
    CHECK(obstacle_of(files.write(whole).c_str()) == PreloadObstacle::musl);
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
        const PreloadObstacle obstacle = obstacle_of(files.write(whole.substr(0, bytes)).c_str());
        CHECK((obstacle == PreloadObstacle::none || obstacle == PreloadObstacle::musl ||
               obstacle == PreloadObstacle::statically_linked));
    }
    std::string other = whole;
    other[EI_CLASS] = ELFCLASS32;
    CHECK(obstacle_of(files.write(other).c_str()) == PreloadObstacle::other_machine);
}

TEST_CASE("a pipe is not opened, and a script that names itself as interpreter ends") {
    const Files files;
    const std::string pipe = files.folder / "pipe";
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    REQUIRE(inotify_add_watch(watch, pipe.c_str(), IN_OPEN) >= 0);
    char opened[4096];
    CHECK(obstacle_of(pipe.c_str()) == PreloadObstacle::none);
    CHECK(obstacle_of(files.write("#!" + pipe + "\n").c_str()) == PreloadObstacle::none);
    CHECK(read(watch, opened, sizeof opened) < 0);
    close(watch);
    const std::string script = files.folder / "file";
    CHECK(obstacle_of(files.write("#!" + script + "\n").c_str()) == PreloadObstacle::none);
}

}  // namespace
}  // namespace assay::preload
