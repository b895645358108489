#include "profile/numa/record/process.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace assay::numa {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t no_process = 0x7fffffff;

TEST_CASE("a pipe that has taken the name of a mapped object is not opened") {
    const fs::path pipe = fs::temp_directory_path() / ("assay-pipe-" + std::to_string(getpid()));
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    const Topology topology{{{0, {0}, 0, {10}}}, false};
    Process process(no_process, 1, 0, topology, true);
    KernelEvent mapped;
    mapped.kind = KernelEvent::Kind::map;
    mapped.address = 0x1000;
    mapped.bytes = 0x1000;
    mapped.executable = true;
    mapped.name = pipe;
    alarm(20);  // to open it would wait for a writer
    process.handle(mapped);
    alarm(0);
    fs::remove(pipe);
    CHECK_FALSE(process.is_before_exec());
}

TEST_CASE("a rank is the number that the launcher gave, by whole names") {
    using namespace std::string_literals;
    CHECK(parse_rank("A=1\0OMPI_COMM_WORLD_RANK=12\0B=2\0"s) == "12");
    CHECK(parse_rank("SLURM_PROCID=3\0PMIX_RANK=0"s) == "0");  // the order of launchers
    CHECK(parse_rank("PMI_RANK=7"s) == "7");
    CHECK(parse_rank("PMI_RANKS=7\0MY_PMI_RANK=8\0PMI_RANK\0"s).empty());
    CHECK(parse_rank("PMI_RANK=\0SLURM_PROCID=5\0"s) == "5");
    CHECK(parse_rank("PMI_RANK=1\n2\0"s).empty());
    CHECK(parse_rank("PMI_RANK=1234567890\0"s).empty());
    CHECK(parse_rank("").empty());
}

TEST_CASE("lists of processors are read, and those of too many are refused") {
    CHECK(parse_list("0-3,8") == std::vector<int>{0, 1, 2, 3, 8});
    CHECK(parse_list("3-1").empty());
    CHECK(parse_list("0-65536").empty());
    std::string many = "0-65535";
    for (int k = 0; k < 10'000; ++k) many += ",0-65535";
    CHECK(parse_list(many).empty());
}

}  // namespace
}  // namespace assay::numa
