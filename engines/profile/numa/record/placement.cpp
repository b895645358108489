// Where a process's pages lie: asked of the kernel for pages that were just touched, and from time
// to time for all.
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

constexpr std::size_t batch = 4096;  // larger ones are not faster
constexpr std::uint64_t huge_pages = 512, max_region_pages = std::uint64_t{1} << 24;
constexpr std::uint64_t present = std::uint64_t{1} << 63;

// The node of each page; negative (an errno) for one that is not in memory. False if the process
// has ended or may not be asked.
bool nodes_of(std::uint32_t pid, const std::vector<std::uint64_t>& pages, std::vector<int>& nodes) {
    nodes.assign(pages.size(), -ENOENT);
    std::vector<void*> addresses(std::min(batch, pages.size()));
    for (std::size_t begin = 0; begin < pages.size(); begin += batch) {
        const std::size_t count = std::min(batch, pages.size() - begin);
        for (std::size_t k = 0; k < count; ++k)
            addresses[k] = reinterpret_cast<void*>(pages[begin + k] << 12);
        if (syscall(SYS_move_pages, static_cast<long>(pid), count, addresses.data(), nullptr,
                    nodes.data() + begin, 0L) != 0)
            return false;
    }
    return true;
}

// Whether the kernel takes pages away to see who uses them (automatic NUMA balancing).
bool is_balancing() {
    std::ifstream file("/proc/sys/kernel/numa_balancing");
    int mode = 0;
    return static_cast<bool>(file >> mode) && mode != 0;
}

// A mapping with pages on one node only; -1 with pages on several.
struct MappingNode {
    std::uint64_t begin;
    int node;
};

std::vector<MappingNode> nodes_of_mappings(std::uint32_t pid) {
    std::ifstream file(fmt::format("/proc/{}/numa_maps", pid));
    std::vector<MappingNode> found;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        MappingNode mapping{0, -1};
        int nodes = 0, pages = 0;
        char equals = 0;
        words >> std::hex >> mapping.begin >> std::dec;
        for (std::string word; words >> word;) {
            std::istringstream rest(word);
            char n = 0;
            if (int node = 0; rest >> n >> node >> equals >> pages && n == 'N' && equals == '=')
                mapping.node = ++nodes == 1 ? node : -1;
        }
        found.push_back(mapping);
    }
    return found;
}

// Kernels before 6.12 do not tell move_pages() where a page is that balancing has taken away for a
// moment. Where the whole mapping lies on one node, so does the page.
void find_hidden(std::uint32_t pid, const std::vector<std::uint64_t>& pages,
                 std::vector<int>& nodes) {
    static const bool balancing = is_balancing();
    if (!balancing || std::ranges::find(nodes, -ENOENT) == nodes.end()) return;
    const std::vector<MappingNode> mappings = nodes_of_mappings(pid);
    for (std::size_t k = 0; k < pages.size(); ++k) {
        if (nodes[k] != -ENOENT) continue;
        const auto next =
            std::ranges::upper_bound(mappings, pages[k] << 12, {}, &MappingNode::begin);
        if (next != mappings.begin() && std::prev(next)->node >= 0)
            nodes[k] = std::prev(next)->node;
    }
}

bool may_be_huge() {
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

void Process::count(const Touch& touch, int node, bool huge) {
    Key key = touch.key;
    std::get<4>(key) = node;
    Count& counted = touches_[key];
    counted.pages += huge ? huge_pages : 1;
    counted.huge += huge ? 1 : 0;
    const std::uint64_t first = huge ? touch.page & ~(huge_pages - 1) : touch.page;
    for (std::uint64_t k = 0; k < (huge ? huge_pages : 1); ++k)
        pages_[first + k] = {key, touch.instance, huge ? touch.page : 0};
}

// Of the pages that were touched: those in memory, since others were given back meanwhile.
void Process::find_hidden_touched(const std::vector<std::uint64_t>& pages, std::vector<int>& nodes,
                                  std::size_t stride) const {
    std::vector<std::uint64_t> hidden;
    std::vector<std::size_t> which;
    const int file = open(fmt::format("/proc/{}/pagemap", pid_).c_str(), O_RDONLY | O_CLOEXEC);
    for (std::size_t k = 0; file >= 0 && k < pages.size(); k += stride) {
        std::uint64_t entry = 0;
        if (nodes[k] != -ENOENT ||
            pread(file, &entry, sizeof entry, static_cast<off_t>(pages[k] * 8)) != sizeof entry ||
            (entry & present) == 0)
            continue;
        hidden.push_back(pages[k]);
        which.push_back(k);
    }
    if (file >= 0) close(file);
    std::vector<int> found(hidden.size(), -ENOENT);
    find_hidden(pid_, hidden, found);
    for (std::size_t k = 0; k < which.size(); ++k) nodes[which[k]] = found[k];
}

void Process::locate_touched() {
    if (waiting_.empty()) return;
    static const bool with_huge = may_be_huge();
    std::vector<std::uint64_t> pages;
    for (const Touch& touch : waiting_) {
        const std::uint64_t first = touch.page & ~(huge_pages - 1);
        pages.push_back(touch.page);
        if (with_huge) pages.insert(pages.end(), {first, first + huge_pages - 1});
    }
    std::vector<int> nodes;
    nodes_of(pid_, pages, nodes);
    const std::size_t stride = with_huge ? 3 : 1;
    if (!topology_.emulated) find_hidden_touched(pages, nodes, stride);
    tsl::robin_map<std::uint64_t, unsigned> touched;  // pages that wait, by huge page
    for (const Touch& touch : waiting_) ++touched[touch.page / huge_pages];
    for (std::size_t k = 0; k < waiting_.size(); ++k) {
        const Touch& touch = waiting_[k];
        const std::uint64_t first = touch.page & ~(huge_pages - 1), last = first + huge_pages - 1;
        const auto is_new = [&](std::uint64_t page) {
            return page == touch.page || !pages_.contains(page);
        };
        const auto is_same_object = [&](std::uint64_t page) {
            return space_.find(page << 12).object == std::get<0>(touch.key);
        };
        // One fault that has brought both ends of a huge page has brought all of it.
        const bool huge = with_huge && touched[touch.page / huge_pages] == 1 &&
                          nodes[k * stride] >= 0 && nodes[k * stride + 1] >= 0 &&
                          nodes[k * stride + 2] >= 0 && is_new(first) && is_new(last) &&
                          space_.objects()[std::get<0>(touch.key)].kind != ObjectKind::global &&
                          is_same_object(first) && is_same_object(last);
        int node = nodes[k * stride];
        if (topology_.emulated)
            node = emulated_node(touch.page, std::get<3>(touch.key),
                                 policy_at(touch.page << 12, std::get<2>(touch.key)));
        count(touch, node >= 0 ? node : -1, huge);
        touched_slices_.add(touch.ns, std::get<3>(touch.key), node >= 0 ? node : -1);
    }
    waiting_.clear();
}

// Where a page lies is known from its first touch and the last sweep, or asked of the kernel; of
// emulated nodes it is known from the first touch alone.
void Process::locate_accessed() {
    const auto known_node = [&](std::uint64_t page) {
        const auto known = pages_.find(page);
        return known != pages_.end() ? std::get<4>(known->second.key) : -1;
    };
    std::vector<std::uint64_t> pages = accesses_.waiting_pages();
    std::erase_if(pages, [&](std::uint64_t page) { return known_node(page) >= 0; });
    std::vector<int> nodes;
    if (topology_.emulated || !nodes_of(pid_, pages, nodes)) nodes.assign(pages.size(), -1);
    accesses_.count(
        [&](std::uint64_t page) {
            const auto asked = std::ranges::lower_bound(pages, page);
            if (asked == pages.end() || *asked != page) return known_node(page);
            return std::max(nodes[static_cast<std::size_t>(asked - pages.begin())], -1);
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
            if ((entries[k] & present) != 0) pages.push_back(page + k);
        page += static_cast<std::uint64_t>(n) / 8;
    }
    close(file);
}

bool Process::sweep(std::uint64_t ns) {
    const std::vector<Region> regions = read_regions(pid_);
    if (regions.empty()) return false;
    space_.refresh();
    std::vector<std::uint64_t> pages;
    for (const Region& region : regions) {
        if (!region.writable || space_.is_own(region.begin)) continue;
        if ((region.end - region.begin) >> 12 > max_region_pages) skipped_pages_ = true;
        else add_resident(region, pages);
    }
    std::vector<int> nodes;
    if (!nodes_of(pid_, pages, nodes)) return false;
    if (!topology_.emulated) find_hidden(pid_, pages, nodes);
    std::map<std::uint32_t, std::map<int, std::uint64_t>> placed;
    std::map<int, std::uint64_t> by_node;
    for (std::size_t k = 0; k < pages.size(); ++k) {
        const auto known = pages_.find(pages[k]);
        const int before = known != pages_.end() ? std::get<4>(known->second.key) : -1;
        int node = nodes[k] >= 0 ? nodes[k] : before;
        if (topology_.emulated) node = before;
        const std::uint32_t object = space_.find(pages[k] << 12).object;
        ++placed[object][node];
        ++by_node[node];
        if (known == pages_.end() || node < 0 || node == before || topology_.emulated) continue;
        Page page = known->second;
        std::get<4>(page.key) = node;
        if (before >= 0) {
            ++moved_[{object, before, node}];
        } else if (Count& unknown = touches_[known->second.key]; unknown.pages > 0) {
            --unknown.pages;
            ++touches_[page.key].pages;
        }
        pages_[pages[k]] = page;
    }
    for (const auto& [node, count] : by_node) memory_.emplace_back(ns, node, count);
    const auto sum = [](const std::map<int, std::uint64_t>& counts) {
        std::uint64_t total = 0;
        for (const auto& [node, count] : counts) total += count;
        return total;
    };
    for (const auto& [object, counts] : placed)
        if (sum(counts) >= sum(placed_[object])) placed_[object] = counts;
    return true;
}

}  // namespace assay::numa
