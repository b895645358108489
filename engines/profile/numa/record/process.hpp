// A profiled process: counts its first touches by object, stack, thread and nodes, and its resident
// pages by node; writes both into a recording.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <tsl/robin_map.h>

#include "profile/numa/format/lines.hpp"
#include "profile/numa/record/accesses.hpp"
#include "profile/numa/record/address_space.hpp"
#include "profile/numa/record/kernel_events.hpp"
#include "profile/numa/record/ring_reader.hpp"
#include "profile/numa/record/slices.hpp"
#include "profile/numa/record/topology.hpp"

namespace assay::numa {

// Finds the MPI rank in an environment (the format of /proc/PID/environ). Returns an empty string
// if no variable holds a rank that is a number.
std::string parse_rank(std::string_view environment);

struct Module {
    std::uint64_t bias, begin, end;
    std::string path;
};

// The parameters of access sampling, for the recording.
struct Sampling {
    std::string events;  // names, separated by commas; empty: no sampling
    std::uint64_t period = 0;
    std::uint64_t throttled = 0;
};

// The registers and the innermost stack words at a page fault or a sample.
struct RawStack {
    std::uint64_t ip, sp, bp;
    std::vector<std::uint64_t> words;
};

class Process {
public:
    Process(std::uint32_t pid, std::uint32_t parent, std::uint64_t ns, const Topology& topology,
            bool sees_faults);

    std::uint32_t pid() const { return pid_; }
    std::uint32_t parent() const { return parent_; }
    void inherit(const Process& parent);
    // Marks that an exec has replaced the program.
    void note_replaced() { was_replaced_ = true; }
    // Whether this is the state between fork and exec, which has no data of its own.
    bool is_before_exec() const { return was_replaced_ && !has_ring_ && modules_.empty(); }
    void set_end(std::uint64_t ns) { ended_ns_ = ns; }
    void set_ring(std::shared_ptr<RingReader> ring);
    bool has_ring() const { return has_ring_; }

    void handle(const KernelEvent& event);
    void handle(const Event& event);
    // Query the nodes of the pages touched or accessed since the last call.
    void locate_touched_pages();
    void locate_accessed_pages();
    // Counts all resident pages by object and node. Returns false if the process has ended.
    bool scan_resident_pages(std::uint64_t ns);
    void read_threads(std::uint64_t ns);
    bool wants_final_scan() const { return is_finishing_; }
    void acknowledge_finish();

    // Writes the recording PID.SERIAL.numa into the folder, unless it would be empty.
    void write(const std::string& folder, int serial, const std::string& fault_note,
               std::uint64_t lost, const Sampling& sampling) const;

private:
    struct Thread {
        std::uint32_t tid;
        std::string name;
        std::string affinity;  // a list as in "0-3,8"; empty: not read yet
        Policy policy;
    };
    struct Binding {
        std::uint32_t thread;
        std::uint64_t ns;
        std::string affinity;
        Policy policy;
    };
    // object, stack, thread, node of the thread, node of the page, policy mode
    using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, int, int, int>;
    struct Count {
        std::uint64_t pages = 0, huge_pages = 0;
    };
    struct Touch {  // a first touch whose page is not located yet
        std::uint64_t page;
        Key key;
        std::uint64_t instance;
        std::uint64_t ns;
    };
    struct Page {
        Key key;
        std::uint64_t instance;
        std::uint64_t faulted_page;  // of a huge page: the small page that faulted; 0: no huge page
    };

    std::uint32_t thread_number(std::uint32_t tid, std::uint64_t ns);
    void read_thread(std::uint32_t thread, std::uint64_t ns);
    std::uint32_t add_raw_stack(const KernelEvent& event);
    bool is_code(std::uint64_t address) const;
    bool is_profiler_code(std::uint64_t address) const;
    void add_module(const KernelEvent& event);
    void handle_fault(const KernelEvent& event);
    void handle_access(const KernelEvent& event);
    void locate_balanced_touched(const std::vector<std::uint64_t>& pages, std::vector<int>& nodes,
                                 std::size_t stride) const;
    void count_touch(const Touch& touch, int node, bool is_huge);
    void split_huge_page(std::uint64_t page);
    void assign_pages_to_block(std::uint64_t address, std::uint64_t bytes);
    void remove_pages(std::uint64_t address, std::uint64_t bytes);
    int emulated_node(std::uint64_t page, int thread_node, const Policy& policy) const;
    Policy policy_at(std::uint64_t address, std::uint32_t thread) const;
    void add_resident(const Region& region, std::vector<std::uint64_t>& pages) const;
    void write_threads(Lines& lines) const;
    void write_slices(Lines& lines, const Slices& slices) const;
    void write_end(Lines& lines, const std::string& fault_note, std::uint64_t lost) const;
    void write_stacks(Lines& lines, std::vector<std::uint64_t>& object_stacks) const;

    std::uint32_t pid_, parent_;
    std::uint64_t started_ns_, ended_ns_ = 0;
    const Topology& topology_;
    bool sees_faults_, was_replaced_ = false, is_finishing_ = false;
    std::string command_line_, rank_;  // rank_: empty outside of MPI
    AddressSpace space_;
    std::vector<Module> modules_;
    std::vector<std::shared_ptr<RingReader>> rings_;  // inherited rings first
    std::uint32_t ring_number_ = 0;
    bool has_ring_ = false;
    std::vector<Thread> threads_;
    std::unordered_map<std::uint32_t, std::uint32_t> thread_numbers_;
    std::vector<Binding> bindings_;
    std::vector<RawStack> raw_stacks_;
    std::unordered_map<std::uint64_t, std::uint32_t> raw_stack_numbers_;
    std::vector<Touch> pending_;
    tsl::robin_map<std::uint64_t, Page> pages_;
    std::map<Key, Count> touches_;
    std::uint64_t repeated_faults_ = 0;  // faults on pages that are already located
    std::map<std::uint32_t, std::map<int, std::uint64_t>> resident_pages_;  // object: pages by node
    std::map<std::tuple<std::uint32_t, int, int>, std::uint64_t> moved_pages_;
    std::vector<std::tuple<std::uint64_t, int, std::uint64_t>> node_pages_;  // ns, node, pages
    bool skipped_mappings_ = false;
    Accesses accesses_;
    Slices touched_slices_, accessed_slices_;  // first touches; sampled accesses
};

void write_nodes(Lines& lines, const Topology& topology);

}  // namespace assay::numa
