// Determines the NUMA nodes of a process's pages: of newly touched pages after each batch of
// faults, and of all resident pages at intervals. The kernel reports them through move_pages(2).
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "profile/numa/record/process.hpp"

namespace assay::numa {
namespace {

constexpr std::size_t batch_pages = 4096;  // per move_pages(); larger batches are not faster
constexpr std::uint64_t pages_per_huge_page = 512, max_region_pages = std::uint64_t{1} << 24;
constexpr std::uint64_t present_bit = std::uint64_t{1} << 63;

// Queries the node of each page; negative (an errno) for a page that is not resident. Returns false
// if the process has ended or the system denies access.
bool query_nodes(std::uint32_t pid, const std::vector<std::uint64_t>& pages,
                 std::vector<int>& nodes) {
    nodes.assign(pages.size(), -ENOENT);
    std::vector<void*> addresses(std::min(batch_pages, pages.size()));
    for (std::size_t begin = 0; begin < pages.size(); begin += batch_pages) {
        const std::size_t count = std::min(batch_pages, pages.size() - begin);
        for (std::size_t k = 0; k < count; ++k)
            addresses[k] = reinterpret_cast<void*>(pages[begin + k] << 12);
        if (syscall(SYS_move_pages, static_cast<long>(pid), count, addresses.data(), nullptr,
                    nodes.data() + begin, 0L) != 0)
            return false;
    }
    return true;
}

// Whether automatic NUMA balancing is on: the kernel unmaps pages temporarily to see who uses them.
bool is_balancing() {
    std::ifstream file("/proc/sys/kernel/numa_balancing");
    int mode = 0;
    return static_cast<bool>(file >> mode) && mode != 0;
}

// The node of all pages of a mapping; -1 if its pages are on several nodes.
struct MappingNode {
    std::uint64_t begin;
    int node;
};

std::vector<MappingNode> read_mapping_nodes(std::uint32_t pid) {
    std::ifstream file(fmt::format("/proc/{}/numa_maps", pid));
    std::vector<MappingNode> mappings;
    for (std::string line; std::getline(file, line);) {
        std::istringstream fields(line);
        MappingNode mapping{0, -1};
        int nodes = 0, pages = 0;
        char equals = 0;
        fields >> std::hex >> mapping.begin >> std::dec;
        for (std::string field; fields >> field;) {
            std::istringstream rest(field);
            char n = 0;
            if (int node = 0; rest >> n >> node >> equals >> pages && n == 'N' && equals == '=')
                mapping.node = ++nodes == 1 ? node : -1;
        }
        mappings.push_back(mapping);
    }
    return mappings;
}

// Locates pages that automatic NUMA balancing has unmapped: move_pages() reports ENOENT for them on
// kernels before 6.12. If all other pages of the mapping are on one node, the page is there too.
void locate_balanced(std::uint32_t pid, const std::vector<std::uint64_t>& pages,
                     std::vector<int>& nodes) {
    static const bool is_balancing_on = is_balancing();
    if (!is_balancing_on || std::ranges::find(nodes, -ENOENT) == nodes.end()) return;
    const std::vector<MappingNode> mappings = read_mapping_nodes(pid);
    for (std::size_t k = 0; k < pages.size(); ++k) {
        if (nodes[k] != -ENOENT) continue;
        const auto next =
            std::ranges::upper_bound(mappings, pages[k] << 12, {}, &MappingNode::begin);
        if (next != mappings.begin() && std::prev(next)->node >= 0)
            nodes[k] = std::prev(next)->node;
    }
}

bool is_thp_enabled() {
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
    std::string line;
    std::getline(file, line);
    return !line.empty() && line.find("[never]") == std::string::npos;
}

}  // namespace

int Process::emulated_node(std::uint64_t page, int thread_node, const Policy& policy) const {
    const std::uint64_t nodes = policy.nodes;
    if (nodes == 0 || policy.mode == MPOL_DEFAULT || policy.mode == MPOL_LOCAL) return thread_node;
    if (policy.mode == MPOL_INTERLEAVE) {
        auto skipped = (page - (policy.begin >> 12)) % static_cast<unsigned>(std::popcount(nodes));
        for (int node = 0; node < 64; ++node)
            if ((nodes >> node & 1) != 0 && skipped-- == 0) return node;
    }
    if (policy.mode == MPOL_BIND && thread_node >= 0 && (nodes >> thread_node & 1) != 0)
        return thread_node;
    return std::countr_zero(nodes);
}

void Process::count_touch(const Touch& touch, int node, bool is_huge) {
    Key key = touch.key;
    std::get<4>(key) = node;
    Count& counted = touches_[key];
    counted.pages += is_huge ? pages_per_huge_page : 1;
    counted.huge_pages += is_huge ? 1 : 0;
    const std::uint64_t first = is_huge ? touch.page & ~(pages_per_huge_page - 1) : touch.page;
    for (std::uint64_t k = 0; k < (is_huge ? pages_per_huge_page : 1); ++k)
        pages_[first + k] = {key, touch.instance, is_huge ? touch.page : 0};
}

// Locates touched pages that NUMA balancing has unmapped. /proc/PID/pagemap tells them from pages
// that the program has released meanwhile. Every `stride`-th page is a touched one.
void Process::locate_balanced_touched(const std::vector<std::uint64_t>& pages,
                                      std::vector<int>& nodes, std::size_t stride) const {
    std::vector<std::uint64_t> balanced;
    std::vector<std::size_t> indices;
    const int file = open(fmt::format("/proc/{}/pagemap", pid_).c_str(), O_RDONLY | O_CLOEXEC);
    for (std::size_t k = 0; file >= 0 && k < pages.size(); k += stride) {
        std::uint64_t entry = 0;
        if (nodes[k] != -ENOENT ||
            pread(file, &entry, sizeof entry, static_cast<off_t>(pages[k] * 8)) != sizeof entry ||
            (entry & present_bit) == 0)
            continue;
        balanced.push_back(pages[k]);
        indices.push_back(k);
    }
    if (file >= 0) close(file);
    std::vector<int> balanced_nodes(balanced.size(), -ENOENT);
    locate_balanced(pid_, balanced, balanced_nodes);
    for (std::size_t k = 0; k < indices.size(); ++k) nodes[indices[k]] = balanced_nodes[k];
}

void Process::locate_touched_pages() {
    if (pending_.empty()) return;
    static const bool thp_enabled = is_thp_enabled();
    std::vector<std::uint64_t> pages;
    for (const Touch& touch : pending_) {
        const std::uint64_t first = touch.page & ~(pages_per_huge_page - 1);
        pages.push_back(touch.page);
        if (thp_enabled) pages.insert(pages.end(), {first, first + pages_per_huge_page - 1});
    }
    std::vector<int> nodes;
    query_nodes(pid_, pages, nodes);
    const std::size_t stride = thp_enabled ? 3 : 1;
    if (!topology_.emulated) locate_balanced_touched(pages, nodes, stride);
    tsl::robin_map<std::uint64_t, unsigned> touched;  // number of pending pages, by huge page
    for (const Touch& touch : pending_) ++touched[touch.page / pages_per_huge_page];
    for (std::size_t k = 0; k < pending_.size(); ++k) {
        const Touch& touch = pending_[k];
        const std::uint64_t first = touch.page & ~(pages_per_huge_page - 1),
                            last = first + pages_per_huge_page - 1;
        const auto is_new = [&](std::uint64_t page) {
            return page == touch.page || !pages_.contains(page);
        };
        const auto is_same_object = [&](std::uint64_t page) {
            return space_.find(page << 12).object == std::get<0>(touch.key);
        };
        // If a single fault makes both ends of a huge page resident, it has mapped a huge page.
        const bool is_huge = thp_enabled && touched[touch.page / pages_per_huge_page] == 1 &&
                             nodes[k * stride] >= 0 && nodes[k * stride + 1] >= 0 &&
                             nodes[k * stride + 2] >= 0 && is_new(first) && is_new(last) &&
                             space_.objects()[std::get<0>(touch.key)].kind != ObjectKind::global &&
                             is_same_object(first) && is_same_object(last);
        int node = nodes[k * stride];
        if (topology_.emulated)
            node = emulated_node(touch.page, std::get<3>(touch.key),
                                 policy_at(touch.page << 12, std::get<2>(touch.key)));
        count_touch(touch, node >= 0 ? node : -1, is_huge);
        touched_slices_.add(touch.ns, std::get<3>(touch.key), node >= 0 ? node : -1);
    }
    pending_.clear();
}

// The node of an accessed page comes from its first touch or the last scan, else from the kernel.
// On emulated nodes it comes from the first touch only.
void Process::locate_accessed_pages() {
    const auto recorded_node = [&](std::uint64_t page) {
        const auto known_page = pages_.find(page);
        return known_page != pages_.end() ? std::get<4>(known_page->second.key) : -1;
    };
    std::vector<std::uint64_t> pages = accesses_.pending_pages();
    std::erase_if(pages, [&](std::uint64_t page) { return recorded_node(page) >= 0; });
    std::vector<int> nodes;
    if (topology_.emulated || !query_nodes(pid_, pages, nodes)) nodes.assign(pages.size(), -1);
    accesses_.count_pending(
        [&](std::uint64_t page) {
            const auto queried = std::ranges::lower_bound(pages, page);
            if (queried == pages.end() || *queried != page) return recorded_node(page);
            return std::max(nodes[static_cast<std::size_t>(queried - pages.begin())], -1);
        },
        accessed_slices_);
}

void Process::add_resident(const Region& region, std::vector<std::uint64_t>& pages) const {
    const int file = open(fmt::format("/proc/{}/pagemap", pid_).c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    std::vector<std::uint64_t> entries(1 << 14);
    for (std::uint64_t page = region.begin >> 12; page < region.end >> 12;) {
        const std::uint64_t count =
            std::min<std::uint64_t>(entries.size(), (region.end >> 12) - page);
        const ssize_t n = pread(file, entries.data(), count * 8, static_cast<off_t>(page * 8));
        if (n < 8) break;
        for (std::uint64_t k = 0; k < static_cast<std::uint64_t>(n) / 8; ++k)
            if ((entries[k] & present_bit) != 0) pages.push_back(page + k);
        page += static_cast<std::uint64_t>(n) / 8;
    }
    close(file);
}

bool Process::scan_resident_pages(std::uint64_t ns) {
    const std::vector<Region> regions = read_regions(pid_);
    if (regions.empty()) return false;
    space_.refresh();
    std::vector<std::uint64_t> pages;
    for (const Region& region : regions) {
        if (!region.writable || space_.is_profiler_memory(region.begin)) continue;
        if ((region.end - region.begin) >> 12 > max_region_pages) skipped_mappings_ = true;
        else add_resident(region, pages);
    }
    std::vector<int> nodes;
    if (!query_nodes(pid_, pages, nodes)) return false;
    if (!topology_.emulated) locate_balanced(pid_, pages, nodes);
    std::map<std::uint32_t, std::map<int, std::uint64_t>> placed;
    std::map<int, std::uint64_t> by_node;
    for (std::size_t k = 0; k < pages.size(); ++k) {
        const auto known_page = pages_.find(pages[k]);
        const int old_node = known_page != pages_.end() ? std::get<4>(known_page->second.key) : -1;
        int node = nodes[k] >= 0 ? nodes[k] : old_node;
        if (topology_.emulated) node = old_node;
        const std::uint32_t object = space_.find(pages[k] << 12).object;
        ++placed[object][node];
        ++by_node[node];
        if (known_page == pages_.end() || node < 0 || node == old_node || topology_.emulated)
            continue;
        Page page = known_page->second;
        std::get<4>(page.key) = node;
        if (old_node >= 0) {
            ++moved_pages_[{object, old_node, node}];
        } else if (Count& unknown = touches_[known_page->second.key]; unknown.pages > 0) {
            --unknown.pages;
            ++touches_[page.key].pages;
        }
        pages_[pages[k]] = page;
    }
    for (const auto& [node, count] : by_node) node_pages_.emplace_back(ns, node, count);
    const auto sum = [](const std::map<int, std::uint64_t>& counts) {
        std::uint64_t total = 0;
        for (const auto& [node, count] : counts) total += count;
        return total;
    };
    for (const auto& [object, counts] : placed)
        if (sum(counts) >= sum(resident_pages_[object])) resident_pages_[object] = counts;
    return true;
}

}  // namespace assay::numa
