// Tests of memory modules: the firmware's SMBIOS table (structures of type 17), udev's database and
// the kernel's EDAC files, all with planted contents.
#include "core/memory_modules.hpp"

#include <doctest/doctest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace assay {
namespace {

namespace fs = std::filesystem;

// An SMBIOS structure of type 17 (memory device) with its strings. The offsets are those of the
// SMBIOS specification, 7.18.
std::vector<std::uint8_t> memory_device(const std::string& locator, const std::string& bank,
                                        int megabytes = 16384, int rate = 3200,
                                        int configured = 2933, int bits = 64, int type = 26) {
    std::vector<std::uint8_t> bytes(0x5c, 0);
    const auto put_u16 = [&](std::size_t offset, int value) {
        bytes[offset] = static_cast<std::uint8_t>(value);
        bytes[offset + 1] = static_cast<std::uint8_t>(value >> 8);
    };
    bytes[0] = 17;
    bytes[1] = 0x5c;
    put_u16(0x0a, bits);
    put_u16(0x0c, megabytes);
    bytes[0x10] = 1;
    bytes[0x11] = bank.empty() ? 0 : 2;
    bytes[0x12] = static_cast<std::uint8_t>(type);
    put_u16(0x15, rate);
    put_u16(0x20, configured);
    for (const std::string& text : {locator, bank}) {
        if (text.empty()) continue;
        bytes.insert(bytes.end(), text.begin(), text.end());
        bytes.push_back(0);
    }
    bytes.push_back(0);
    return bytes;
}

std::vector<std::uint8_t> table(const std::vector<std::vector<std::uint8_t>>& structures) {
    // Before them a structure without strings, such as a processor's.
    std::vector<std::uint8_t> bytes = {4, 6, 0, 0, 1, 2, 0, 0};
    for (const auto& structure : structures)
        bytes.insert(bytes.end(), structure.begin(), structure.end());
    bytes.insert(bytes.end(), {127, 4, 0xff, 0xff, 0, 0});
    return bytes;
}

void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
}

struct PlantedMachine {
    PlantedMachine() {
        root = fs::temp_directory_path() / ("assay-modules-" + std::to_string(getpid()));
        fs::create_directories(root);
        setenv("ASSAY_ROOT", root.c_str(), 1);
    }
    PlantedMachine(const PlantedMachine&) = delete;
    PlantedMachine& operator=(const PlantedMachine&) = delete;
    ~PlantedMachine() {
        unsetenv("ASSAY_ROOT");
        fs::remove_all(root);
    }
    void plant(const std::vector<std::uint8_t>& bytes) const {
        write(root / "sys/firmware/dmi/tables/DMI", {bytes.begin(), bytes.end()});
    }
    fs::path root;
};

TEST_CASE("memory modules are read from the firmware's table") {
    const auto modules = modules_of_table(
        table({memory_device("DIMM_A1", "BANK 0"), memory_device("DIMM_A2", "BANK 1", 0),
               memory_device("DIMM_B1", "BANK 2"), memory_device("SPI", "", 16, 0, 0, 8, 9)}));
    REQUIRE(modules.size() == 2);
    CHECK(modules[0].locator == "DIMM_A1");
    CHECK(modules[1].bank == "BANK 2");
    CHECK(modules[1].transfer_rate == 2933e6);
    CHECK(modules[1].data_bits == 64U);
}

TEST_CASE("a table that is truncated at any byte is read without error") {
    const auto complete_table =
        table({memory_device("DIMM_A1", "BANK 0"), memory_device("DIMM_B1", "BANK 2")});
    for (std::size_t bytes = 0; bytes < complete_table.size(); ++bytes)
        CHECK(modules_of_table(std::span(complete_table).first(bytes)).size() <= 2);
}

TEST_CASE("names of any length and invalid numbers are read without error") {
    const std::string long_name(60'000, 'a');
    const auto modules =
        modules_of_table(table({memory_device(long_name, long_name + "channel 1")}));
    REQUIRE(modules.size() == 1);
    CHECK(modules[0].locator == long_name);
    CHECK(channels_named(modules) == std::nullopt);
    const auto udev = modules_of_udev("E:MEMORY_DEVICE_0_LOCATOR=" + std::string(1'000'000, 'a') +
                                      "\nE:MEMORY_DEVICE_0_SIZE=1\n"
                                      "E:MEMORY_DEVICE_0_SPEED_MTS=nan\n"
                                      "E:MEMORY_DEVICE_0_DATA_WIDTH=4294967360\n"
                                      "E:MEMORY_DEVICE_1_SIZE=1\n"
                                      "E:MEMORY_DEVICE_1_CONFIGURED_SPEED_MTS=1e400\n"
                                      "E:MEMORY_DEVICE_1_SPEED_MTS=3200\n"
                                      "E:MEMORY_DEVICE_1_DATA_WIDTH=64\n");
    REQUIRE(udev.size() == 2);
    CHECK(udev[0].transfer_rate == 0);
    CHECK(udev[0].data_bits == 0U);
    CHECK(udev[1].transfer_rate == 0);
    CHECK(udev[1].data_bits == 64U);
}

TEST_CASE("channels are counted only if all locators name one") {
    const auto count = [](std::vector<std::pair<std::string, std::string>> names) {
        std::vector<MemoryModule> modules;
        for (const auto& [locator, bank] : names) modules.push_back({locator, bank, 0, 0, ""});
        return channels_named(modules);
    };
    CHECK(count({{"DIMM 0", "P0 CHANNEL A"},
                 {"DIMM 1", "P0 CHANNEL A"},
                 {"DIMM 0", "P1 CHANNEL A"}}) == 2);
    CHECK(count({{"ChannelA-DIMM0", "BANK 0"}, {"ChannelB-DIMM0", "BANK 2"}}) == 2);
    CHECK(count({{"P1-DIMMA1", "P0_Node0_Channel0_Dimm0"},
                 {"P1-DIMMB1", "P0_Node0_Channel1_Dimm0"}}) == 2);
    CHECK(count({{"CPU1_DIMM_A1", "NODE 1"},
                 {"CPU1_DIMM_A2", "NODE 1"},
                 {"CPU2_DIMM_A1", "NODE 2"}}) == 2);
    CHECK(count({{"A1", "Not Specified"}}) == std::nullopt);
    CHECK(count({{"P1-DIMMA1", ""}, {"PROC 1 DIMM 3", ""}}) == std::nullopt);
}

TEST_CASE_FIXTURE(PlantedMachine, "modules are read from udev if the table is not readable") {
    write(root / "run/udev/data/+dmi:id",
          "E:MEMORY_DEVICE_0_SIZE=34359738368\nE:MEMORY_DEVICE_0_LOCATOR=P0-DIMMA1\nE:MEMORY_"
          "DEVICE_0_TYPE=DDR4\n"
          "E:MEMORY_DEVICE_0_DATA_WIDTH=64\nE:MEMORY_DEVICE_0_SPEED_MTS=3200\n"
          "E:MEMORY_DEVICE_0_CONFIGURED_SPEED_MTS=2400\nE:MEMORY_DEVICE_1_PRESENT=0\n"
          "E:MEMORY_DEVICE_1_LOCATOR=P0-DIMMA2\nE:MEMORY_DEVICE_999999999999_SIZE=1\nE:ID_VENDOR="
          "X\n");
    const auto modules = memory_modules();
    REQUIRE(modules);
    CHECK(modules->modules == 1);
    CHECK(modules->channels == 1);
    CHECK(modules->transfer_rate == 2400e6);
    CHECK(modules->width == 8);
}

TEST_CASE_FIXTURE(PlantedMachine,
                  "channels that the kernel names take precedence over those in locators") {
    plant(table({memory_device("A1", "Not Specified"), memory_device("A2", "Not Specified"),
                 memory_device("A3", "Not Specified", 16384, 2666, 2666)}));
    const fs::path controller = root / "sys/devices/system/edac/mc/mc0";
    for (const auto& [name, location, megabytes] :
         {std::tuple("dimm0", "channel 0 slot 0", "16384"),
          std::tuple("dimm1", "channel 0 slot 1", "16384"),
          std::tuple("dimm3", "channel 1 slot 0", "16384"),
          std::tuple("dimm6", "channel 2 slot 0", "0")}) {
        write(controller / name / "dimm_location", location);
        write(controller / name / "size", megabytes);
    }
    const auto modules = memory_modules();
    REQUIRE(modules);
    CHECK(modules->modules == 3);
    CHECK(modules->channels == 2);
    CHECK(modules->transfer_rate == 2666e6);
}

TEST_CASE_FIXTURE(PlantedMachine,
                  "there is no result if a module has no rate or the types differ") {
    CHECK_FALSE(memory_modules());
    plant(table({memory_device("DIMM_A1", ""), memory_device("DIMM_B1", "", 16384, 0, 0)}));
    CHECK_FALSE(memory_modules());
    plant(table(
        {memory_device("DIMM_A1", ""), memory_device("HBM_A1", "", 16384, 3200, 3200, 64, 33)}));
    CHECK_FALSE(memory_modules());
}

}  // namespace
}  // namespace assay
