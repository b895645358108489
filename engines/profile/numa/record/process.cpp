// Handles the events of a profiled process: page faults, sampled accesses, allocations, and the
// policies and affinities of its threads.
#include "profile/numa/record/process.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <linux/mempolicy.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "core/rank_variables.hpp"

namespace assay::numa {
namespace {

constexpr std::size_t max_raw_stacks = 200'000;
constexpr std::size_t max_digits = 9;  // of a rank

// The load bias of an ELF object: the difference between addresses in memory and in its file. The
// executable segment at the mapping's file offset gives it.
std::uint64_t load_bias(const KernelEvent& mapping) {
    std::error_code ignored;
    // Another file may have the name by now. Opening a named pipe would block.
    if (!std::filesystem::is_regular_file(mapping.name, ignored))
        return mapping.address - mapping.offset;
    std::ifstream file(mapping.name, std::ios::binary);
    Elf64_Ehdr header{};
    if (!file.read(reinterpret_cast<char*>(&header), sizeof header) ||
        std::string_view(reinterpret_cast<char*>(header.e_ident), 4) != ELFMAG ||
        header.e_phentsize != sizeof(Elf64_Phdr))
        return mapping.address - mapping.offset;
    for (int k = 0; k < header.e_phnum; ++k) {
        Elf64_Phdr segment{};
        file.seekg(static_cast<std::streamoff>(header.e_phoff) +
                   k * static_cast<std::streamoff>(sizeof segment));
        if (!file.read(reinterpret_cast<char*>(&segment), sizeof segment)) break;
        if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0 &&
            (segment.p_offset & ~std::uint64_t{4095}) == mapping.offset)
            return mapping.address - (segment.p_vaddr & ~std::uint64_t{4095});
    }
    return mapping.address - mapping.offset;
}

// Whether an object is the profiler's own: the data of its preloaded library, or its ring.
bool is_profiler_object(const Object& object) {
    return object.kind == ObjectKind::global &&
           (object.name.ends_with("/libassay-numa.so") ||
            object.name.find("/assay-numa-") != std::string::npos);
}

// Reads a file of /proc/PID.
std::string read_proc_file(std::uint32_t pid, const char* name) {
    std::ifstream file(fmt::format("/proc/{}/{}", pid, name), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

std::string read_command_line(std::uint32_t pid) { return read_proc_file(pid, "cmdline"); }

// The MPI rank in a process's initial environment; empty without one.
std::string read_rank(std::uint32_t pid) { return parse_rank(read_proc_file(pid, "environ")); }

}  // namespace

std::string parse_rank(std::string_view environment) {
    for (const std::string_view name : rank_variables)
        for (std::size_t begin = 0; begin < environment.size();) {
            const std::size_t end = std::min(environment.find('\0', begin), environment.size());
            const std::string_view variable = environment.substr(begin, end - begin);
            begin = end + 1;
            if (!variable.starts_with(name) || variable.substr(name.size(), 1) != "=") continue;
            const std::string_view rank = variable.substr(name.size() + 1);
            const bool is_number =
                !rank.empty() && rank.size() <= max_digits &&
                std::ranges::all_of(rank, [](char c) { return c >= '0' && c <= '9'; });
            if (is_number) return std::string(rank);
        }
    return "";
}

Process::Process(std::uint32_t pid, std::uint32_t parent, std::uint64_t ns,
                 const Topology& topology, bool sees_faults)
    : pid_(pid),
      parent_(parent),
      started_ns_(ns),
      topology_(topology),
      sees_faults_(sees_faults),
      command_line_(read_command_line(pid)),
      rank_(read_rank(pid)),
      space_(pid),
      touched_slices_(ns),
      accessed_slices_(ns) {}

void Process::inherit(const Process& parent) {
    space_.inherit(parent.space_);
    modules_ = parent.modules_;
    rings_ = parent.rings_;
    if (command_line_.empty()) command_line_ = parent.command_line_;
}

void Process::set_ring(std::shared_ptr<RingReader> ring) {
    has_ring_ = true;
    ring_number_ = static_cast<std::uint32_t>(rings_.size());
    rings_.push_back(std::move(ring));
    command_line_ = read_command_line(pid_);
    rank_ = read_rank(pid_);
    if (!modules_.empty()) return;
    for (const Region& region : space_.refresh()) {  // without kernel events
        if (region.path.empty() || region.path[0] != '/') continue;
        const bool is_known = !modules_.empty() && modules_.back().path == region.path;
        if (is_known) modules_.back().end = region.end;
        else modules_.push_back({region.begin, region.begin, region.end, region.path});
    }
}

std::uint32_t Process::thread_number(std::uint32_t tid, std::uint64_t ns) {
    const auto [entry, is_new] =
        thread_numbers_.try_emplace(tid, static_cast<std::uint32_t>(threads_.size()));
    if (is_new) {
        threads_.push_back({tid, "", "", {}});
        read_thread(entry->second, ns);
    }
    return entry->second;
}

void Process::read_thread(std::uint32_t number, std::uint64_t ns) {
    Thread& thread = threads_[number];
    std::ifstream file(fmt::format("/proc/{}/task/{}/status", pid_, thread.tid));
    std::string affinity;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("Name:\t")) thread.name = line.substr(6);
        if (line.starts_with("Cpus_allowed_list:\t")) affinity = line.substr(19);
    }
    if (affinity.empty() || parse_list(affinity) == parse_list(thread.affinity)) return;
    thread.affinity = affinity;
    bindings_.push_back({number, ns, affinity, thread.policy});
}

void Process::read_threads(std::uint64_t ns) {
    for (std::uint32_t number = 0; number < threads_.size(); ++number) read_thread(number, ns);
}

// Whether an address is in the code of the profiler's preloaded library.
bool Process::is_profiler_code(std::uint64_t address) const {
    return std::ranges::any_of(modules_, [&](const Module& module) {
        return address >= module.begin && address < module.end &&
               module.path.ends_with("/libassay-numa.so");
    });
}

bool Process::is_code(std::uint64_t address) const {
    return std::ranges::any_of(modules_, [&](const Module& module) {
        return address >= module.begin && address < module.end;
    });
}

// Returns the number of a raw stack. Stacks are the same if their words that point into code are.
std::uint32_t Process::add_raw_stack(const KernelEvent& event) {
    std::uint64_t hash = event.ip * 0x9e3779b97f4a7c15ull;
    for (std::uint32_t k = 0; k < event.used_words; ++k)
        if (event.stack[k] > 0xffff && is_code(event.stack[k]))
            hash = ((hash ^ (hash >> 29)) + event.stack[k]) * 0x9e3779b97f4a7c15ull;
    const auto entry = raw_stack_numbers_.find(hash);
    if (entry != raw_stack_numbers_.end()) return entry->second;
    const bool is_full = raw_stacks_.size() == max_raw_stacks;
    raw_stacks_.push_back({event.ip, event.sp, event.bp,
                           is_full
                               ? std::vector<std::uint64_t>()
                               : std::vector<std::uint64_t>(
                                     event.stack.begin(), event.stack.begin() + event.used_words)});
    const auto number = static_cast<std::uint32_t>(raw_stacks_.size() - 1);
    raw_stack_numbers_.emplace(hash, number);
    return number;
}

void Process::add_module(const KernelEvent& event) {
    if (!event.executable || event.name.empty() || event.name[0] != '/' ||
        event.name.starts_with("//"))
        return;
    const std::uint64_t end = event.address + event.bytes;
    std::erase_if(modules_, [&](const Module& module) {
        return module.begin < end && event.address < module.end;
    });
    modules_.push_back({load_bias(event), event.address, end, event.name});
}

void Process::handle(const KernelEvent& event) {
    if (event.kind == KernelEvent::Kind::map) add_module(event);
    if (event.kind == KernelEvent::Kind::fault) handle_fault(event);
    if (event.kind == KernelEvent::Kind::access) handle_access(event);
}

Policy Process::policy_at(std::uint64_t address, std::uint32_t thread) const {
    const Policy* policy = space_.policy_of(address);
    return policy != nullptr ? *policy : threads_[thread].policy;
}

void Process::handle_fault(const KernelEvent& event) {
    if (event.address == 0 || space_.is_profiler_memory(event.address)) return;
    const std::uint32_t thread = thread_number(event.tid, event.ns);
    const Location location = space_.find(event.address);
    if (is_profiler_object(space_.objects()[location.object])) return;
    const std::uint64_t page = event.address >> 12;
    auto known_page = pages_.find(page);
    if (known_page != pages_.end() && known_page->second.faulted_page != 0 &&
        known_page->second.faulted_page != page &&
        known_page->second.instance == location.instance) {
        split_huge_page(page);
        known_page = pages_.end();
    }
    const bool is_located = known_page != pages_.end() && std::get<4>(known_page->second.key) >= 0;
    if (is_located && known_page->second.instance == location.instance) {
        ++repeated_faults_;
        return;
    }
    if (known_page != pages_.end() && !is_located &&
        known_page->second.instance == location.instance) {
        // The first access was a read, which mapped the shared zero page. This fault allocates a
        // page.
        Count& before = touches_[known_page->second.key];
        if (before.pages > 0) --before.pages;
        pages_.erase(page);
    }
    const int mode = policy_at(event.address, thread).mode & 0xff;
    pending_.push_back({page,
                        {location.object, add_raw_stack(event), thread,
                         topology_.node_of(event.processor), -1, mode},
                        location.instance,
                        event.ns});
}

void Process::handle_access(const KernelEvent& event) {
    if (space_.is_profiler_memory(event.address) || is_profiler_code(event.ip)) return;
    constexpr std::uint64_t part_count = 16;
    SampledAccess access{no_object,
                         add_raw_stack(event),
                         thread_number(event.tid, event.ns),
                         topology_.node_of(event.processor),
                         event.address >> 12,
                         0,
                         event.source,
                         event.ns};
    if (event.address != 0) {
        const Location location = space_.find(event.address);
        if (is_profiler_object(space_.objects()[location.object])) return;
        access.object = static_cast<int>(location.object);
        if (location.end > location.begin) {
            const std::uint64_t bytes = location.end - location.begin;
            const std::uint64_t part_bytes = bytes / part_count + (bytes % part_count != 0 ? 1 : 0);
            access.part = static_cast<int>((event.address - location.begin) / part_bytes);
        }
    }
    accesses_.add(access);
}

// Splits a supposed huge page into its touched page, since another of its pages faults later.
void Process::split_huge_page(std::uint64_t page) {
    constexpr std::uint64_t pages_per_huge_page = 512;
    const Page split = pages_[page];
    Count& counted = touches_[split.key];
    counted.pages -= std::min(counted.pages, pages_per_huge_page - 1);
    counted.huge_pages -= std::min<std::uint64_t>(counted.huge_pages, 1);
    const std::uint64_t begin = page & ~(pages_per_huge_page - 1);
    for (std::uint64_t k = begin; k < begin + pages_per_huge_page; ++k) pages_.erase(k);
    pages_[split.faulted_page] = {split.key, split.instance, 0};
}

// Assigns pages to a new block that the allocator has touched while it created the block.
void Process::assign_pages_to_block(std::uint64_t address, std::uint64_t bytes) {
    const Location location = space_.find(address);
    const auto move = [&](Key& key, std::uint64_t& instance) {
        std::get<0>(key) = location.object;
        instance = location.instance;
    };
    const std::uint64_t first = address >> 12, last = (address + bytes - 1) >> 12;
    for (Touch& touch : pending_)
        if (touch.page >= first && touch.page <= last && touch.instance == 0)
            move(touch.key, touch.instance);
    constexpr std::uint64_t max_block_pages = 1 << 16;
    for (std::uint64_t page = first; page <= std::min(last, first + max_block_pages); ++page) {
        const auto known_page = pages_.find(page);
        if (known_page == pages_.end() || known_page->second.instance != 0) continue;
        Page moved = known_page->second;
        Count& before = touches_[moved.key];
        const std::uint64_t pages = moved.faulted_page != 0 ? 0 : 1;
        if (before.pages < pages) continue;
        before.pages -= pages;
        move(moved.key, moved.instance);
        touches_[moved.key].pages += pages;
        pages_[page] = moved;
    }
}

void Process::remove_pages(std::uint64_t address, std::uint64_t bytes) {
    const std::uint64_t first = address >> 12, end = (address + bytes + 4095) >> 12;
    if (end - first > pages_.size()) {
        for (auto page = pages_.begin(); page != pages_.end();)
            if (page->first >= first && page->first < end) page = pages_.erase(page);
            else ++page;
        return;
    }
    for (std::uint64_t page = first; page < end; ++page) pages_.erase(page);
}

void Process::handle(const Event& event) {
    switch (event.kind) {
        case EventKind::allocate:
            space_.allocate(event.address, event.bytes, ring_number_, event.stack);
            assign_pages_to_block(event.address, event.bytes);
            break;
        case EventKind::release: space_.release(event.address); break;
        case EventKind::map:
            remove_pages(event.address, event.bytes);
            space_.map(event.address, event.bytes, ring_number_, event.stack);
            break;
        case EventKind::unmap:
            space_.unmap(event.address, event.bytes);
            remove_pages(event.address, event.bytes);
            break;
        case EventKind::policy:
            space_.set_policy(event.address, event.bytes,
                              {event.mode & 0xff, event.mask, event.address});
            break;
        case EventKind::thread_policy: {
            Thread& thread = threads_[thread_number(event.tid, event.ns)];
            thread.policy = {event.mode & 0xff, event.mask, 0};
            bindings_.push_back(
                {thread_numbers_[event.tid], event.ns, thread.affinity, thread.policy});
            break;
        }
        case EventKind::affinity: {
            const std::uint32_t number = thread_number(event.tid, event.ns);
            std::string affinity;
            for (int k = 0; k < 128; ++k)
                if (((k < 64 ? event.mask : event.more_mask) >> (k % 64) & 1) != 0)
                    affinity += fmt::format("{}{}", affinity.empty() ? "" : ",", k);
            if (affinity.empty()) break;
            threads_[number].affinity = affinity;
            bindings_.push_back({number, event.ns, affinity, threads_[number].policy});
            break;
        }
        case EventKind::thread:
            thread_number(event.tid, event.ns);
            space_.add_stack(event.address, event.bytes);
            break;
        case EventKind::profiler_memory:
            space_.add_profiler_memory(event.address, event.bytes);
            break;
        case EventKind::finish: is_finishing_ = true; break;
    }
}

void Process::acknowledge_finish() {
    is_finishing_ = false;
    if (has_ring_) rings_[ring_number_]->acknowledge();
}

}  // namespace assay::numa
