#include "profile/numa/record/memory_events.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/error.hpp"

using namespace assay::numa;

namespace {

namespace fs = std::filesystem;

// The folder of a machine's PMUs.
class Devices {
public:
    Devices() { REQUIRE(mkdtemp(folder_.data()) != nullptr); }
    ~Devices() { fs::remove_all(folder_); }
    Devices(const Devices&) = delete;
    Devices& operator=(const Devices&) = delete;
    Devices& file(const std::string& name, const std::string& content) {
        const fs::path path = fs::path(folder_) / name;
        fs::create_directories(path.parent_path());
        std::ofstream(path) << content << '\n';
        return *this;
    }
    std::vector<MemoryEvent> find(std::uint64_t period = 0) const {
        return find_memory_events(folder_, period);
    }

private:
    std::string folder_ = (fs::temp_directory_path() / "assay-pmu-XXXXXX").string();
};

void plant_intel(Devices& devices, const std::string& name = "cpu") {
    devices.file(name + "/type", "4")
        .file(name + "/format/event", "config:0-7")
        .file(name + "/format/umask", "config:8-15")
        .file(name + "/format/ldlat", "config1:0-15")
        .file(name + "/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3")
        .file(name + "/events/mem-stores", "event=0xd0,umask=0x82");
}

}  // namespace

TEST_CASE("Intel's events of loads and stores are found") {
    Devices devices;
    plant_intel(devices);
    const auto events = devices.find();
    REQUIRE(events.size() == 2);
    CHECK(events[0].name == "cpu/mem-loads/");
    CHECK(events[0].type == 4);
    CHECK(events[0].config[0] == 0x1cd);
    CHECK(events[0].config[1] == 3);
    CHECK(events[0].operation == Operation::load);
    CHECK(!events[0].leader);
    CHECK(events[0].excludes_kernel);
    CHECK(events[1].config[0] == 0x82d0);
    CHECK(events[1].operation == Operation::store);
    CHECK(events[1].period > 1000);
    CHECK(devices.find(77)[1].period == 77);
}

TEST_CASE("each kind of core has its events, and loads have a leader where they need one") {
    Devices devices;
    plant_intel(devices, "cpu_core");
    plant_intel(devices, "cpu_atom");
    devices.file("cpu_core/cpus", "0-1").file("cpu_atom/cpus", "2-3,6");
    devices.file("cpu_core/events/mem-loads-aux", "event=0x03,umask=0x82");
    const auto events = devices.find();
    REQUIRE(events.size() == 4);
    CHECK(events[0].leader == 0x8203);
    CHECK(!events[1].leader);
    CHECK(events[0].processors == std::vector<int>{0, 1});
    CHECK(events[3].processors == std::vector<int>{2, 3, 6});
}

TEST_CASE("AMD's sampling of instructions is found") {
    Devices devices;
    devices.file("ibs_op/type", "11").file("ibs_op/format/cnt_ctl", "config:19");
    auto events = devices.find(1001);
    REQUIRE(events.size() == 1);
    CHECK(events[0].config[0] == 1 << 19);
    CHECK(events[0].operation == Operation::none);
    CHECK(events[0].period == 1008);  // the hardware leaves out four bits
    CHECK(!events[0].excludes_kernel);
    devices.file("ibs_op/format/swfilt", "config2:0");
    events = devices.find();
    CHECK(events[0].config[2] == 1);
    CHECK(events[0].excludes_kernel);
    CHECK(events[0].period % 16 == 0);
}

TEST_CASE("a value is spread over several ranges of bits") {
    Devices devices;
    plant_intel(devices);
    devices.file("cpu/format/event", "config:0-3,32-35");
    CHECK(devices.find()[0].config[0] == 0xc'0000'010d);
}

TEST_CASE("a machine without a PMU that samples accesses is refused") {
    const Devices devices;
    CHECK_THROWS_WITH_AS(devices.find(), doctest::Contains("no PMU here samples memory accesses"),
                         assay::Error);
}

TEST_CASE("events whose description cannot be read are refused") {
    for (const auto& [name, content] : {std::pair{"cpu/events/mem-loads", "event=zz"},
                                        {"cpu/events/mem-loads", "weight=1"},
                                        {"cpu/events/mem-loads", "../type=1"},
                                        {"cpu/events/mem-loads", "event=0x1ff"},
                                        {"cpu/format/event", "config:0-64"},
                                        {"cpu/format/event", "config:7-0"},
                                        {"cpu/format/event", "config9:0-7"},
                                        {"cpu/format/event", ""},
                                        {"cpu/type", "x"}}) {
        Devices devices;
        plant_intel(devices);
        devices.file(name, content);
        CHECK_THROWS_AS(devices.find(), assay::Error);
    }
}
