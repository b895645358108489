// Tests of the choice of RDMA ports and addresses, with devices in a fake /sys.
#include "node/rdma/ports.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "core/error.hpp"

using namespace assay;
using namespace assay::rdma;

namespace {

namespace fs = std::filesystem;

class FakeSysfs {
public:
    FakeSysfs() {
        char name[] = "/tmp/assay-rdma-XXXXXX";
        root_ = mkdtemp(name);
        setenv("ASSAY_ROOT", root_.c_str(), 1);
    }
    ~FakeSysfs() {
        unsetenv("ASSAY_ROOT");
        fs::remove_all(root_);
    }
    void file(const std::string& path, const std::string& text) const {
        const fs::path full_path = root_ / "sys/class/infiniband" / path;
        fs::create_directories(full_path.parent_path());
        std::ofstream(full_path) << text << '\n';
    }
    void port(const std::string& device, int number, const std::string& state) const {
        file(device + "/ports/" + std::to_string(number) + "/state", state);
    }
    void gid(const std::string& device, int index, const std::string& address,
             const std::string& type) const {
        const std::string directory = device + "/ports/1/", entry = std::to_string(index);
        file(directory + "gids/" + entry, address);
        if (!type.empty()) file(directory + "gid_attrs/types/" + entry, type);
    }

    // Adds a software device, as the kernel lists it.
    void software(const std::string& device) const {
        const fs::path real = root_ / "sys/devices/virtual/infiniband" / device;
        fs::create_directories(real);
        fs::create_directories(root_ / "sys/class/infiniband");
        fs::create_directory_symlink(real, root_ / "sys/class/infiniband" / device);
    }

private:
    fs::path root_;
};

std::string port_or_refusal(const std::string& device, int port) {
    try {
        return "found " + find_port(device, port).text();
    } catch (const Error& error) {
        return std::string(error.what()) + "; " + error.fix;
    }
}

bool names(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

constexpr const char* local = "fe80:0000:0000:0000:f466:b8ff:fe95:df4c";
constexpr const char* global = "2001:0db8:0000:0000:0000:0000:0000:0001";
constexpr const char* ipv4 = "0000:0000:0000:0000:0000:ffff:0ac8:0001";

}  // namespace

TEST_CASE("port names are parsed, and invalid ones are refused") {
    CHECK(parse_port_name("mlx5_0").port == 0);
    CHECK(parse_port_name("mlx5_0:2").text() == "mlx5_0:2");
    for (const char* wrong : {"", ":1", "mlx5_0:", "mlx5_0:x", "mlx5_0:1:2", "../x", "mlx5_0:-1"}) {
        CAPTURE(wrong);
        CHECK_THROWS_AS(parse_port_name(wrong), Error);
    }
}

TEST_CASE("find_port: the given port, or the first active one") {
    const FakeSysfs machine;
    CHECK(names(port_or_refusal("", 0), "there is none"));
    machine.port("mlx5_0", 1, "1: DOWN");
    CHECK(names(port_or_refusal("", 0), "mlx5_0:1 is DOWN"));
    machine.port("mlx5_1", 1, "1: DOWN");
    machine.port("mlx5_1", 2, "4: ACTIVE");
    CHECK(port_or_refusal("", 0) == "found mlx5_1:2");
    CHECK(port_or_refusal("mlx5_1", 0) == "found mlx5_1:2");
    CHECK(port_or_refusal("mlx5_1", 2) == "found mlx5_1:2");
    CHECK(port_or_refusal("mlx5_1:2", 0) == "found mlx5_1:2");
    CHECK(names(port_or_refusal("mlx5_1", 1), "mlx5_1:1 is not active, it is DOWN"));
    CHECK(names(port_or_refusal("mlx5_1", 3), "no port 3; it has 1 to 2"));
    CHECK(names(port_or_refusal("mlx5_1:2", 1), "contradict"));
    CHECK(names(port_or_refusal("mlx4_0", 0),
                "no RDMA device is called 'mlx4_0'; choose one of mlx5_0, mlx5_1"));
}

TEST_CASE("NUMA node and software devices") {
    const FakeSysfs machine;
    machine.file("mlx5_0/device/numa_node", "1");
    machine.file("mlx5_1/device/numa_node", "-1");
    machine.software("rxe0");
    CHECK(is_software_device("rxe0"));
    CHECK(numa_node("mlx5_0") == 1);
    CHECK_FALSE(numa_node("mlx5_1"));
    CHECK_FALSE(numa_node("rxe0"));
    CHECK_FALSE(is_software_device("mlx5_0"));
    CHECK_FALSE(is_software_device("no_such"));
}

TEST_CASE("the address table, without empty entries") {
    const FakeSysfs machine;
    machine.gid("rxe0", 0, local, "RoCE v2");
    machine.gid("rxe0", 1, ipv4, "RoCE v2");
    machine.gid("rxe0", 2, "0000:0000:0000:0000:0000:0000:0000:0000", "");
    machine.gid("rxe0", 10, global, "IB/RoCE v1");
    const auto table = gids({"rxe0", 1});
    REQUIRE(table.size() == 3);
    CHECK(table[1].index == 1);
    CHECK(table[1].address == ipv4);
    CHECK(table[2].index == 10);
    CHECK(table[2].type == "IB/RoCE v1");
    CHECK(choose_gids(table, table)->own.index == 1);
    CHECK(describe_gids({table[1]}) == fmt::format("1 is {} (RoCE v2)", ipv4));
}

TEST_CASE("two sides choose GIDs of one type and kind of address, whatever their indices") {
    const std::string same_network = "0000:0000:0000:0000:0000:ffff:0ac8:0002",
                      other_network = "0000:0000:0000:0000:0000:ffff:c0a8:0101";
    const auto chosen = [](const std::vector<Gid>& a, const std::vector<Gid>& b) {
        const auto pair = choose_gids(a, b), mirrored = choose_gids(b, a);
        REQUIRE(pair.has_value() == mirrored.has_value());
        if (!pair) return std::pair{-1, -1};
        CHECK(mirrored->own.index == pair->other.index);
        CHECK(mirrored->other.index == pair->own.index);
        return std::pair{pair->own.index, pair->other.index};
    };
    const Gid v1{0, ipv4, "IB/RoCE v1", ""}, v2{3, ipv4, "RoCE v2", ""};
    // The default index is v1 here and v2 there.
    CHECK(chosen({v1, {1, ipv4, "RoCE v2", ""}}, {{0, local, "RoCE v2", ""}, v2}) ==
          std::pair{1, 3});
    // One side has v1 alone, or no IPv4.
    CHECK(chosen({v1}, {{0, local, "RoCE v2", ""}, {2, same_network, "IB/RoCE v1", ""}, v2}) ==
          std::pair{0, 2});
    CHECK(chosen({{1, local, "RoCE v2", ""}, v2}, {{7, local, "RoCE v2", ""}}) == std::pair{1, 7});
    // Of several networks the common one.
    CHECK(chosen({v2}, {{1, other_network, "RoCE v2", ""}, {4, same_network, "RoCE v2", ""}}) ==
          std::pair{3, 4});
    CHECK(chosen({{1, same_network, "RoCE v2", ""}, {2, other_network, "RoCE v2", ""}},
                 {{1, other_network, "RoCE v2", ""}, {2, same_network, "RoCE v2", ""}}) ==
          std::pair{1, 2});
    CHECK(chosen({v1}, {v2}) == std::pair{-1, -1});
    CHECK(chosen({v2, {4, ipv4, "RoCE v2", ""}}, {{0, global, "RoCE v2", ""}}) ==
          std::pair{-1, -1});
    CHECK(chosen({v2}, {{0, global, "RoCE v2", ""}}) == std::pair{3, 0});  // both chosen by hand
}

TEST_CASE("RoCE v2 is preferred to v1, and IPv4 and global addresses to link-local ones") {
    const auto chosen = [](const std::vector<Gid>& table) {
        return choose_gids(table, table).value().own.index;
    };
    CHECK_FALSE(choose_gids({}, {}));
    CHECK(chosen({{0, local, "IB/RoCE v1", ""}}) == 0);
    CHECK(chosen({{0, local, "IB/RoCE v1", ""}, {1, local, "RoCE v2", ""}}) == 1);
    CHECK(chosen({{0, ipv4, "IB/RoCE v1", ""}, {1, local, "RoCE v2", ""}}) == 1);
    CHECK(chosen({{1, local, "RoCE v2", ""}, {2, global, "RoCE v2", ""}}) == 2);
    // mlx5 lists v1 and v2 entries in turn; the first of two IPv4 addresses is chosen.
    CHECK(chosen({{0, local, "IB/RoCE v1", ""},
                  {1, local, "RoCE v2", ""},
                  {2, ipv4, "IB/RoCE v1", ""},
                  {3, ipv4, "RoCE v2", ""},
                  {5, ipv4, "RoCE v2", ""}}) == 3);
}

TEST_CASE("a port's bytes are 4 times its data counters, else the bytes of its interface") {
    const FakeSysfs sysfs;
    sysfs.port("mlx5_0", 1, "4: ACTIVE");
    CHECK_FALSE(port_bytes({"mlx5_0", 1}));
    sysfs.file("mlx5_0/ports/1/gid_attrs/ndevs/0", "eth7");
    CHECK_FALSE(port_bytes({"mlx5_0", 1}));
    sysfs.file("../net/eth7/statistics/tx_bytes", "70");
    sysfs.file("../net/eth7/statistics/rx_bytes", "80");
    REQUIRE(port_bytes({"mlx5_0", 1}));
    CHECK(port_bytes({"mlx5_0", 1})->sent == 70);
    CHECK(port_bytes({"mlx5_0", 1})->received == 80);
    sysfs.file("mlx5_0/ports/1/counters/port_xmit_data", "1000");
    sysfs.file("mlx5_0/ports/1/counters/port_rcv_data", "N/A (no PMA)");
    CHECK(port_bytes({"mlx5_0", 1})->sent == 70);
    sysfs.file("mlx5_0/ports/1/counters/port_rcv_data", "2000");
    CHECK(port_bytes({"mlx5_0", 1})->sent == 4000);
    CHECK(port_bytes({"mlx5_0", 1})->received == 8000);
}

TEST_CASE("an interface name that is a path is ignored") {
    const FakeSysfs sysfs;
    sysfs.port("rxe0", 1, "4: ACTIVE");
    sysfs.file("rxe0/ports/1/gid_attrs/ndevs/0", "../../../etc");
    CHECK_FALSE(port_bytes({"rxe0", 1}));
}

TEST_CASE("the network interfaces of a port are those of its address table, else of its adapter") {
    const FakeSysfs machine;
    machine.port("mlx5_0", 1, "4: ACTIVE");
    machine.port("mlx5_0", 2, "4: ACTIVE");
    CHECK(interfaces({"mlx5_0", 1}).empty());
    machine.file("mlx5_0/device/net/ib0/dev_port", "0");
    machine.file("mlx5_0/device/net/ib1/dev_port", "1");
    CHECK(interfaces({"mlx5_0", 1}) == std::vector<std::string>{"ib0"});
    CHECK(interfaces({"mlx5_0", 2}) == std::vector<std::string>{"ib1"});
    machine.gid("mlx5_0", 0, local, "RoCE v2");
    machine.gid("mlx5_0", 1, ipv4, "RoCE v2");
    for (const char* entry : {"0", "1"})
        machine.file(std::string("mlx5_0/ports/1/gid_attrs/ndevs/") + entry, "eth7");
    CHECK(interfaces({"mlx5_0", 1}) == std::vector<std::string>{"eth7"});
}
