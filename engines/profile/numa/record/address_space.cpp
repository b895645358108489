// Finds the block, mapping, thread stack or file segment that holds an address of a profiled
// process.
#include "profile/numa/record/address_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "core/clock.hpp"

namespace assay::numa {
namespace {

constexpr Nanoseconds refresh_interval_ns = 1'000'000;

}  // namespace

const char* name_of(ObjectKind kind) {
    switch (kind) {
        case ObjectKind::heap: return "heap";
        case ObjectKind::mapping: return "mapping";
        case ObjectKind::global: return "global";
        case ObjectKind::stack: return "stack";
        case ObjectKind::small: return "small";
        case ObjectKind::other: break;
    }
    return "other";
}

std::vector<Region> read_regions(std::uint32_t pid) {
    std::ifstream file(fmt::format("/proc/{}/maps", pid));
    std::vector<Region> regions;
    for (std::string line; std::getline(file, line);) {
        std::istringstream fields(line);
        Region region{};
        char dash = 0;
        std::string permissions, offset, device, inode;
        fields >> std::hex >> region.begin >> dash >> region.end >> permissions >> offset >>
            device >> inode;
        if (!fields || permissions.size() < 4) continue;
        std::getline(fields >> std::ws, region.path);
        region.writable = permissions[1] == 'w';
        region.shared = permissions[3] == 's';
        // The anonymous mapping after an object's data is its .bss.
        if (region.path.empty() && !regions.empty() && regions.back().end == region.begin &&
            regions.back().path.starts_with('/') && regions.back().writable)
            region.path = regions.back().path;
        regions.push_back(std::move(region));
    }
    return regions;
}

void AddressSpace::inherit(const AddressSpace& parent) {
    const std::uint32_t pid = pid_;
    *this = parent;
    pid_ = pid;
    last_refresh_ = 0;
}

const AddressSpace::Blocks::value_type* AddressSpace::find_in(const Blocks& blocks,
                                                              std::uint64_t address) {
    auto next = blocks.upper_bound(address);
    if (next == blocks.begin()) return nullptr;
    --next;
    return address < next->second.end ? &*next : nullptr;
}

// Removes an address range. Parts of blocks outside of the range remain.
void AddressSpace::remove_range(Blocks& blocks, std::uint64_t begin, std::uint64_t end) {
    auto next = blocks.upper_bound(begin);
    if (next != blocks.begin() && std::prev(next)->second.end > begin) --next;
    while (next != blocks.end() && next->first < end) {
        const auto [first, block] = *next;
        next = blocks.erase(next);
        if (first < begin) blocks[first] = {begin, block.object, block.instance};
        if (block.end > end) blocks[end] = block;
    }
}

std::uint32_t AddressSpace::object(ObjectKind kind, const std::string& name, std::uint32_t ring,
                                   std::uint32_t stack) {
    const auto [entry, is_new] = object_ids_.try_emplace(
        fmt::format("{} {} {} {}", static_cast<int>(kind), ring, stack, name),
        static_cast<std::uint32_t>(objects_.size()));
    if (is_new) objects_.push_back({kind, name, ring, stack});
    return entry->second;
}

void AddressSpace::allocate(std::uint64_t address, std::uint64_t bytes, std::uint32_t ring,
                            std::uint32_t stack) {
    const std::uint32_t id = object(ObjectKind::heap, "", ring, stack);
    objects_[id].bytes += bytes;
    ++objects_[id].count;
    remove_range(blocks_, address, address + bytes);
    blocks_[address] = {address + bytes, id, ++last_instance_};
}

void AddressSpace::release(std::uint64_t address) { blocks_.erase(address); }

void AddressSpace::map(std::uint64_t address, std::uint64_t bytes, std::uint32_t ring,
                       std::uint32_t stack) {
    unmap(address, bytes);
    const std::uint32_t id = object(ObjectKind::mapping, "", ring, stack);
    objects_[id].bytes += bytes;
    ++objects_[id].count;
    mappings_[address] = {address + bytes, id, ++last_instance_};
}

void AddressSpace::unmap(std::uint64_t address, std::uint64_t bytes) {
    remove_range(mappings_, address, address + bytes);
    remove_range(profiler_memory_, address, address + bytes);
    set_policy(address, bytes, {});
}

void AddressSpace::add_stack(std::uint64_t address, std::uint64_t bytes) {
    if (bytes == 0) return;
    const std::uint32_t id = object(ObjectKind::stack, "stacks of threads");
    objects_[id].bytes += bytes;
    ++objects_[id].count;
    remove_range(stacks_, address, address + bytes);
    stacks_[address] = {address + bytes, id, ++last_instance_};
}

void AddressSpace::add_profiler_memory(std::uint64_t address, std::uint64_t bytes) {
    remove_range(profiler_memory_, address, address + bytes);
    profiler_memory_[address] = {address + bytes, 0, 0};
}

void AddressSpace::set_policy(std::uint64_t address, std::uint64_t bytes, Policy policy) {
    const std::uint64_t end = address + bytes;
    auto next = policies_.upper_bound(address);
    if (next != policies_.begin() && std::prev(next)->second.first > address) --next;
    while (next != policies_.end() && next->first < end) {
        const auto [first, old] = *next;
        next = policies_.erase(next);
        if (first < address) policies_[first] = {address, old.second};
        if (old.first > end) policies_[end] = old;
    }
    if (policy.mode == 0) return;
    policy.begin = address;
    policies_[address] = {end, policy};
}

bool AddressSpace::is_profiler_memory(std::uint64_t address) const {
    return find_in(profiler_memory_, address) != nullptr;
}

const Policy* AddressSpace::policy_of(std::uint64_t address) const {
    auto next = policies_.upper_bound(address);
    if (next == policies_.begin()) return nullptr;
    --next;
    return address < next->second.first ? &next->second.second : nullptr;
}

const std::vector<Region>& AddressSpace::refresh() {
    last_refresh_ = now();
    std::vector<Region> regions = read_regions(pid_);
    if (!regions.empty()) regions_ = std::move(regions);
    return regions_;
}

Location AddressSpace::find(std::uint64_t address) {
    for (const Blocks* blocks : {&blocks_, &stacks_, &mappings_})
        if (const auto* entry = find_in(*blocks, address))
            return {entry->second.object, entry->second.instance, entry->first, entry->second.end};
    return find_region(address);
}

Location AddressSpace::find_region(std::uint64_t address) {
    const auto find_cached = [&] {
        const auto next = std::ranges::upper_bound(regions_, address, {}, &Region::end);
        return next != regions_.end() && next->begin <= address ? &*next : nullptr;
    };
    const Region* region = find_cached();
    if (region == nullptr && now() - last_refresh_ > refresh_interval_ns) {
        refresh();
        region = find_cached();
    }
    if (region == nullptr || region->path.empty())
        return {object(ObjectKind::other, "other anonymous memory"), 0, 0, 0};
    const auto place = [&](ObjectKind kind, const std::string& name) {
        return Location{object(kind, name), 0, region->begin, region->end};
    };
    if (region->path == "[heap]") return place(ObjectKind::small, "small blocks");
    if (region->path == "[stack]") return place(ObjectKind::stack, "stacks of threads");
    return place(ObjectKind::global, region->path);
}

}  // namespace assay::numa
