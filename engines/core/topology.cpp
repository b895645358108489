// This host's topology from hwloc, /proc and /sys, binding of threads, and memory on NUMA nodes
// (which cores belong to which: core/numa.cpp).
#include "core/topology.hpp"

#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.hpp"
#include "core/hwloc.hpp"
#include "core/numa.hpp"

namespace assay {
namespace {

// Hides the variables by which hwloc takes another machine for this one. A site or an MPI may have
// set them, and binding to such a machine succeeds without an effect. They are put back, for they
// may be meant for the MPI.
class WithoutForeignMachine {
public:
    WithoutForeignMachine() {
        for (const char* name : {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC", "HWLOC_FSROOT",
                                 "HWLOC_CPUID_PATH", "HWLOC_COMPONENTS", "HWLOC_THISSYSTEM"})
            if (const char* value = std::getenv(name); value != nullptr && *value != 0) {
                hidden_.emplace(name, value);
                unsetenv(name);
            }
    }
    ~WithoutForeignMachine() {
        for (const auto& [name, value] : hidden_) setenv(name.c_str(), value.c_str(), 1);
    }
    WithoutForeignMachine(const WithoutForeignMachine&) = delete;
    WithoutForeignMachine& operator=(const WithoutForeignMachine&) = delete;

    // "HWLOC_SYNTHETIC, HWLOC_XMLFILE"; empty if there was none.
    std::string names() const {
        std::string names;
        for (const auto& [name, value] : hidden_) names += (names.empty() ? "" : ", ") + name;
        return names;
    }

private:
    std::map<std::string, std::string> hidden_;
};

// The machine as hwloc reads it from the kernel, or the planted one of $ASSAY_TOPOLOGY: the name of
// an XML file of hwloc, or a synthetic string ("numa:2 core:4 pu:1").
class Topology {
public:
    Topology() {
        const WithoutForeignMachine hidden;
        ignored_ = hidden.names();
        hwloc_topology_init(&handle_);
        hwloc_topology_set_all_types_filter(handle_, HWLOC_TYPE_FILTER_KEEP_ALL);
        const char* text = std::getenv("ASSAY_TOPOLOGY");
        if (text != nullptr && *text != 0) plant(text);
        if (hwloc_topology_load(handle_) != 0)
            throw Error(
                "hwloc cannot read " +
                    (planted_.empty() ? "this host's topology" : "ASSAY_TOPOLOGY=" + planted_),
                planted_.empty() ? "" : "give a synthetic string or XML of lstopo, version 2");
        if (planted_.empty() && !hwloc_topology_is_thissystem(handle_))
            throw Error("hwloc describes another machine than this one",
                        "unset the variables that begin with HWLOC_");
    }
    ~Topology() { hwloc_topology_destroy(handle_); }
    Topology(const Topology&) = delete;
    Topology& operator=(const Topology&) = delete;

    hwloc_topology_t handle() const { return handle_; }
    int count(hwloc_obj_type_t type) const { return hwloc_get_nbobjs_by_type(handle_, type); }
    const std::string& planted() const { return planted_; }  // empty: this machine
    const std::string& ignored() const { return ignored_; }  // variables of another machine

private:
    void plant(const std::string& machine) {
        planted_ = machine;
        const bool is_file = std::filesystem::is_regular_file(machine);
        if ((is_file ? hwloc_topology_set_xml : hwloc_topology_set_synthetic)(handle_,
                                                                              machine.c_str()) != 0)
            throw Error("ASSAY_TOPOLOGY: hwloc reads no machine from '" + machine + "'",
                        "give the XML file of a machine (lstopo FILE.xml), or numa:2 core:4 pu:1");
    }

    std::string planted_, ignored_;
    hwloc_topology_t handle_{};
};

// Loaded once: loading takes milliseconds, and the topology does not change during a run.
const Topology& topology() {
    static const Topology loaded;
    return loaded;
}

std::string info(const Topology& t, const char* key) {
    for (hwloc_obj_type_t type : {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_MACHINE})
        if (hwloc_obj_t object = hwloc_get_obj_by_type(t.handle(), type, 0))
            if (const char* value = hwloc_obj_get_info_by_name(object, key)) return value;
    return {};
}

std::string os_name() {
    std::ifstream file("/etc/os-release");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("PRETTY_NAME=\"")) return line.substr(13, line.size() - 14);
    return {};
}

// A field of /proc/meminfo in bytes; 0 if missing.
std::size_t meminfo(const std::string& key) {
    std::ifstream file("/proc/meminfo");
    std::string name, unit;
    for (std::size_t value; file >> name >> value && std::getline(file, unit);)
        if (name == key + ":") return value * (unit.find("kB") != std::string::npos ? 1024 : 1);
    return 0;
}

}  // namespace

hwloc_topology_t hwloc_of_this_machine() { return topology().handle(); }

bool kernel_describes_machine() {
    return topology().planted().empty() || std::getenv("ASSAY_ROOT") != nullptr;
}

std::string host_name() {
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    return name;
}

int core_count() { return topology().count(HWLOC_OBJ_CORE); }

std::size_t last_level_cache() {
    for (hwloc_obj_type_t level : {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
        std::size_t sum = 0;
        for (int i = 0; i < topology().count(level); ++i)
            sum += hwloc_get_obj_by_type(topology().handle(), level, static_cast<unsigned>(i))
                       ->attr->cache.size;
        if (sum != 0) return sum;
    }
    return std::size_t{32} << 20;
}

void bind_to_core(int index) {
    hwloc_obj_t core =
        hwloc_get_obj_by_type(topology().handle(), HWLOC_OBJ_CORE, static_cast<unsigned>(index));
    if (core == nullptr) throw Error("no such core: " + std::to_string(index));
    hwloc_bitmap_t processor = hwloc_bitmap_dup(core->cpuset);
    hwloc_bitmap_singlify(processor);
    const int status = hwloc_set_cpubind(topology().handle(), processor, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(processor);
    if (status != 0)
        throw Error(
            "cannot bind a thread to core " + std::to_string(index),
            "check whether this process is confined to fewer processors (taskset, a container)");
}

namespace {

hwloc_obj_t node_object(int number) {
    const Topology& t = topology();
    for (int i = 0; i < t.count(HWLOC_OBJ_NUMANODE); ++i) {
        hwloc_obj_t node =
            hwloc_get_obj_by_type(t.handle(), HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
        if (static_cast<int>(node->os_index) == number) return node;
    }
    throw Error("no such NUMA node: " + std::to_string(number));
}

}  // namespace

void bind_to_node(const NumaNode& node) {
    hwloc_bitmap_t cores = hwloc_bitmap_alloc();
    for (int core : node.cores)
        hwloc_bitmap_or(
            cores, cores,
            hwloc_get_obj_by_type(topology().handle(), HWLOC_OBJ_CORE, static_cast<unsigned>(core))
                ->cpuset);
    const int status = hwloc_set_cpubind(topology().handle(), cores, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(cores);
    if (status != 0)
        throw Error(
            "cannot bind a thread to NUMA node " + std::to_string(node.number),
            "check whether this process is confined to fewer processors (taskset, a container)");
}

NodeMemory::NodeMemory(std::size_t bytes, int node) {
    constexpr std::size_t huge = std::size_t{2} << 20;
    bytes_ = (bytes + huge - 1) / huge * huge;
    void* pages = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        throw Error("cannot allocate " + std::to_string(bytes_ >> 20) + " MiB of memory",
                    "free memory, or run on an idle node");
    data_ = pages;
    madvise(pages, bytes_, MADV_HUGEPAGE);
    if (node == any || topology().count(HWLOC_OBJ_NUMANODE) < 2) return;
    if (hwloc_set_area_membind(topology().handle(), pages, bytes_, node_object(node)->nodeset,
                               HWLOC_MEMBIND_BIND,
                               HWLOC_MEMBIND_BYNODESET | HWLOC_MEMBIND_STRICT) != 0)
        throw Error("cannot place memory on NUMA node " + std::to_string(node),
                    "check whether this process is confined to other nodes (numactl, a container)");
}

NodeMemory::~NodeMemory() {
    if (data_ != nullptr) munmap(data_, bytes_);
}

NodeMemory::NodeMemory(NodeMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

bool NodeMemory::is_on_node(int node) const {
    if (topology().count(HWLOC_OBJ_NUMANODE) < 2) return true;
    hwloc_bitmap_t page_nodes = hwloc_bitmap_alloc();
    bool on_node = true;
    // At most 64 pages: each takes a system call.
    for (std::size_t offset = 0; offset < bytes_;
         offset += std::max<std::size_t>(bytes_ / 64, 4096)) {
        if (hwloc_get_area_memlocation(topology().handle(), static_cast<char*>(data_) + offset, 1,
                                       page_nodes, HWLOC_MEMBIND_BYNODESET) != 0)
            break;
        on_node &= hwloc_bitmap_iszero(page_nodes) ||
                   hwloc_bitmap_isset(page_nodes, static_cast<unsigned>(node)) != 0;
    }
    hwloc_bitmap_free(page_nodes);
    return on_node;
}

std::string under_root(const std::string& path) {
    const char* root = std::getenv("ASSAY_ROOT");
    return (root != nullptr ? std::string(root) : std::string()) + path;
}

std::string sysfs(const std::string& path) { return under_root("/sys/") + path; }
std::string procfs(const std::string& path) { return under_root("/proc/") + path; }

std::string read_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    line.erase(line.find_last_not_of(" \t\r") + 1);
    return line;
}

std::vector<std::string> entries(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
        names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
}

Json host_facts() {
    const Topology& t = topology();
    utsname kernel{};
    uname(&kernel);
    Json facts = {{"os.name", os_name()},
                  {"kernel.release", kernel.release},
                  {"cpu.model", info(t, "CPUModel")},
                  {"cpu.packages", t.count(HWLOC_OBJ_PACKAGE)},
                  {"cpu.cores", t.count(HWLOC_OBJ_CORE)},
                  {"cpu.threads", t.count(HWLOC_OBJ_PU)},
                  {"cpu.last_level_cache_bytes", last_level_cache()},
                  {"numa.nodes", t.count(HWLOC_OBJ_NUMANODE)},
                  {"memory.bytes", meminfo("MemTotal")},
                  {"assay.version", ASSAY_VERSION}};
    std::size_t apart = 0;
    for (const RemoteCores& remote : cores_without_memory()) apart += remote.cores.size();
    if (apart > 0) {
        facts["numa.cores_without_memory"] = apart;
        facts["numa.nearest_memory"] = nearest_memory();
    }
    if (cores_across_nodes() > 0) facts["numa.cores_across_nodes"] = cores_across_nodes();
    if (!t.planted().empty()) facts["topology.planted"] = t.planted();
    if (!t.ignored().empty()) facts["topology.ignored"] = t.ignored();
    return facts;
}

}  // namespace assay
