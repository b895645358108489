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

// What the loader added to the addresses of an object's file: from the segment that was mapped
// here.
std::uint64_t bias_of(const KernelEvent& mapping) {
    std::error_code none;
    // Another file may have the name by now; to open a pipe would wait.
    if (!std::filesystem::is_regular_file(mapping.name, none))
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

// The preloaded part's data, and its ring before that is known as the profiler's.
bool is_own(const Object& object) {
    return object.kind == ObjectKind::global &&
           (object.name.ends_with("/libassay-numa.so") ||
            object.name.find("/assay-numa-") != std::string::npos);
}

// A file of /proc/PID, whole.
std::string read_whole(std::uint32_t pid, const char* name) {
    std::ifstream file(fmt::format("/proc/{}/{}", pid, name), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

std::string program_of(std::uint32_t pid) { return read_whole(pid, "cmdline"); }

// The MPI rank that a launcher gave a process when it started; empty without one.
std::string rank_of(std::uint32_t pid) { return rank_in(read_whole(pid, "environ")); }

}  // namespace

std::string rank_in(std::string_view environment) {
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
      program_(program_of(pid)),
      rank_(rank_of(pid)),
      space_(pid),
      touched_slices_(ns),
      accessed_slices_(ns) {}

void Process::inherit(const Process& parent) {
    space_.inherit(parent.space_);
    modules_ = parent.modules_;
    rings_ = parent.rings_;
    if (program_.empty()) program_ = parent.program_;
}

void Process::set_ring(std::shared_ptr<RingReader> ring) {
    has_ring_ = true;
    own_ring_ = static_cast<std::uint32_t>(rings_.size());
    rings_.push_back(std::move(ring));
    program_ = program_of(pid_);
    rank_ = rank_of(pid_);
    if (!modules_.empty()) return;
    for (const Region& region : space_.refresh()) {  // without kernel events
        if (region.path.empty() || region.path[0] != '/') continue;
        const bool is_known = !modules_.empty() && modules_.back().path == region.path;
        if (is_known) modules_.back().end = region.end;
        else modules_.push_back({region.begin, region.begin, region.end, region.path});
    }
}

std::uint32_t Process::thread_of(std::uint32_t tid, std::uint64_t ns) {
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

void Process::look_at_threads(std::uint64_t ns) {
    for (std::uint32_t number = 0; number < threads_.size(); ++number) read_thread(number, ns);
}

// Of the preloaded part, which runs within the program.
bool Process::is_own_code(std::uint64_t address) const {
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

// Stacks that differ only in data are one: the words that lie in code tell them apart.
std::uint32_t Process::raw_stack(const KernelEvent& event) {
    std::uint64_t hash = event.ip * 0x9e3779b97f4a7c15ull;
    for (std::uint32_t k = 0; k < event.used; ++k)
        if (event.stack[k] > 0xffff && is_code(event.stack[k]))
            hash = ((hash ^ (hash >> 29)) + event.stack[k]) * 0x9e3779b97f4a7c15ull;
    const auto known = raw_numbers_.find(hash);
    if (known != raw_numbers_.end()) return known->second;
    const bool is_full = raw_stacks_.size() == max_raw_stacks;
    raw_stacks_.push_back({event.ip, event.sp, event.bp,
                           is_full ? std::vector<std::uint64_t>()
                                   : std::vector<std::uint64_t>(event.stack.begin(),
                                                                event.stack.begin() + event.used)});
    const auto number = static_cast<std::uint32_t>(raw_stacks_.size() - 1);
    raw_numbers_.emplace(hash, number);
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
    modules_.push_back({bias_of(event), event.address, end, event.name});
}

void Process::take(const KernelEvent& event) {
    if (event.kind == KernelEvent::Kind::map) add_module(event);
    if (event.kind == KernelEvent::Kind::fault) take_fault(event);
    if (event.kind == KernelEvent::Kind::access) take_access(event);
}

Policy Process::policy_at(std::uint64_t address, std::uint32_t thread) const {
    const Policy* policy = space_.policy_of(address);
    return policy != nullptr ? *policy : threads_[thread].policy;
}

void Process::take_fault(const KernelEvent& event) {
    if (event.address == 0 || space_.is_own(event.address)) return;
    const std::uint32_t thread = thread_of(event.tid, event.ns);
    const Place place = space_.find(event.address);
    if (is_own(space_.objects()[place.object])) return;
    const std::uint64_t page = event.address >> 12;
    auto known = pages_.find(page);
    if (known != pages_.end() && known->second.huge != 0 && known->second.huge != page &&
        known->second.instance == place.instance) {
        split(page);
        known = pages_.end();
    }
    const bool is_located = known != pages_.end() && std::get<4>(known->second.key) >= 0;
    if (is_located && known->second.instance == place.instance) {
        ++again_;
        return;
    }
    if (known != pages_.end() && !is_located && known->second.instance == place.instance) {
        // Its first access was a read of the kernel's page of zeros: now it gets memory.
        Count& before = touches_[known->second.key];
        if (before.pages > 0) --before.pages;
        pages_.erase(page);
    }
    const int mode = policy_at(event.address, thread).mode & 0xff;
    waiting_.push_back(
        {page,
         {place.object, raw_stack(event), thread, topology_.node_of(event.processor), -1, mode},
         place.instance,
         event.ns});
}

void Process::take_access(const KernelEvent& event) {
    if (space_.is_own(event.address) || is_own_code(event.ip)) return;
    constexpr std::uint64_t parts = 16;
    SampledAccess access{no_object,
                         raw_stack(event),
                         thread_of(event.tid, event.ns),
                         topology_.node_of(event.processor),
                         event.address >> 12,
                         0,
                         event.source,
                         event.ns};
    if (event.address != 0) {
        const Place place = space_.find(event.address);
        if (is_own(space_.objects()[place.object])) return;
        access.object = static_cast<int>(place.object);
        if (place.end > place.begin) {
            const std::uint64_t bytes = place.end - place.begin;
            const std::uint64_t part = bytes / parts + (bytes % parts != 0 ? 1 : 0);
            access.part = static_cast<int>((event.address - place.begin) / part);
        }
    }
    accesses_.add(access);
}

// What was taken for a huge page is not one: another of its pages was touched after it.
void Process::split(std::uint64_t page) {
    constexpr std::uint64_t huge_pages = 512;
    const Page first = pages_[page];
    Count& counted = touches_[first.key];
    counted.pages -= std::min(counted.pages, huge_pages - 1);
    counted.huge -= std::min<std::uint64_t>(counted.huge, 1);
    const std::uint64_t begin = page & ~(huge_pages - 1);
    for (std::uint64_t k = begin; k < begin + huge_pages; ++k) pages_.erase(k);
    pages_[first.huge] = {first.key, first.instance, 0};
}

// Blocks of a page and more get the pages that the allocator itself has just touched in them.
void Process::adopt(std::uint64_t address, std::uint64_t bytes) {
    const Place place = space_.find(address);
    const auto move = [&](Key& key, std::uint64_t& instance) {
        std::get<0>(key) = place.object;
        instance = place.instance;
    };
    const std::uint64_t first = address >> 12, last = (address + bytes - 1) >> 12;
    for (Touch& touch : waiting_)
        if (touch.page >= first && touch.page <= last && touch.instance == 0)
            move(touch.key, touch.instance);
    constexpr std::uint64_t most = 1 << 16;
    for (std::uint64_t page = first; page <= std::min(last, first + most); ++page) {
        const auto known = pages_.find(page);
        if (known == pages_.end() || known->second.instance != 0) continue;
        Page moved = known->second;
        Count& before = touches_[moved.key];
        const std::uint64_t pages = moved.huge != 0 ? 0 : 1;
        if (before.pages < pages) continue;
        before.pages -= pages;
        move(moved.key, moved.instance);
        touches_[moved.key].pages += pages;
        pages_[page] = moved;
    }
}

void Process::forget(std::uint64_t address, std::uint64_t bytes) {
    const std::uint64_t first = address >> 12, end = (address + bytes + 4095) >> 12;
    if (end - first > pages_.size()) {
        for (auto page = pages_.begin(); page != pages_.end();)
            if (page->first >= first && page->first < end) page = pages_.erase(page);
            else ++page;
        return;
    }
    for (std::uint64_t page = first; page < end; ++page) pages_.erase(page);
}

void Process::take(const Event& event) {
    switch (event.kind) {
        case EventKind::allocate:
            space_.allocate(event.address, event.bytes, own_ring_, event.stack);
            adopt(event.address, event.bytes);
            break;
        case EventKind::release: space_.release(event.address); break;
        case EventKind::map:
            forget(event.address, event.bytes);
            space_.map(event.address, event.bytes, own_ring_, event.stack);
            break;
        case EventKind::unmap:
            space_.unmap(event.address, event.bytes);
            forget(event.address, event.bytes);
            break;
        case EventKind::policy:
            space_.set_policy(event.address, event.bytes,
                              {event.mode & 0xff, event.mask, event.address});
            break;
        case EventKind::thread_policy: {
            Thread& thread = threads_[thread_of(event.tid, event.ns)];
            thread.policy = {event.mode & 0xff, event.mask, 0};
            bindings_.push_back(
                {thread_numbers_[event.tid], event.ns, thread.affinity, thread.policy});
            break;
        }
        case EventKind::affinity: {
            const std::uint32_t number = thread_of(event.tid, event.ns);
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
            thread_of(event.tid, event.ns);
            space_.add_stack(event.address, event.bytes);
            break;
        case EventKind::own: space_.add_own(event.address, event.bytes); break;
        case EventKind::finish: finishing_ = true; break;
    }
}

void Process::answer_last_look() {
    finishing_ = false;
    if (has_ring_) rings_[own_ring_]->acknowledge();
}

}  // namespace assay::numa
