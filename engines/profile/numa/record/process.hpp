// A profiled process: its first touches, by object, stack, thread and nodes, and its pages by node.
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

// The MPI rank in an environment as /proc/PID/environ has it; empty without one, or if it is no
// number.
std::string rank_in(std::string_view environment);

struct Module {
    std::uint64_t bias, begin, end;
    std::string path;
};

// How accesses were sampled, for the recording.
struct Sampling {
    std::string events;  // their names, with commas; empty: accesses were not sampled
    std::uint64_t period = 0;
    std::uint64_t throttled = 0;
};

// A stack as the kernel copied it at a page fault or a sample.
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
    // From now on another program runs in this process.
    void note_replaced() { replaced_ = true; }
    // A process before its first exec, of which nothing can be said.
    bool is_blank() const { return replaced_ && !has_ring_ && modules_.empty(); }
    void note_exit(std::uint64_t ns) { ended_ns_ = ns; }
    void set_ring(std::shared_ptr<RingReader> ring);
    bool has_ring() const { return has_ring_; }

    void take(const KernelEvent& event);
    void take(const Event& event);
    // Asks the kernel where the pages that were touched since lie.
    void locate_touched();
    void locate_accessed();
    // Looks at all resident pages. Returns false when the process has ended.
    bool sweep(std::uint64_t ns);
    void look_at_threads(std::uint64_t ns);
    bool asks_for_last_look() const { return finishing_; }
    void answer_last_look();

    // Writes the recording into the folder, unless nothing is known.
    void write(const std::string& folder, int serial, const std::string& why_no_faults,
               std::uint64_t lost, const Sampling& sampling) const;

private:
    struct Thread {
        std::uint32_t tid;
        std::string name;
        std::string affinity;  // as the kernel writes it; empty if it was never read
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
        std::uint64_t pages = 0, huge = 0;
    };
    struct Touch {  // waits for its page to be located
        std::uint64_t page;
        Key key;
        std::uint64_t instance;
        std::uint64_t ns;
    };
    struct Page {
        Key key;
        std::uint64_t instance;
        std::uint64_t huge;  // the page whose fault brought a huge page; 0: a page of its own
    };

    std::uint32_t thread_of(std::uint32_t tid, std::uint64_t ns);
    void read_thread(std::uint32_t thread, std::uint64_t ns);
    std::uint32_t raw_stack(const KernelEvent& event);
    bool is_code(std::uint64_t address) const;
    bool is_own_code(std::uint64_t address) const;
    void add_module(const KernelEvent& event);
    void take_fault(const KernelEvent& event);
    void take_access(const KernelEvent& event);
    void find_hidden_touched(const std::vector<std::uint64_t>& pages, std::vector<int>& nodes,
                             std::size_t stride) const;
    void count(const Touch& touch, int node, bool huge);
    void split(std::uint64_t page);
    void adopt(std::uint64_t address, std::uint64_t bytes);
    void forget(std::uint64_t address, std::uint64_t bytes);
    int emulated_node(std::uint64_t page, int thread_node, const Policy& policy) const;
    Policy policy_at(std::uint64_t address, std::uint32_t thread) const;
    void add_resident(const Region& region, std::vector<std::uint64_t>& pages) const;
    void write_threads(Lines& lines) const;
    void write_slices(Lines& lines, const Slices& slices) const;
    void write_end(Lines& lines, const std::string& why_no_faults, std::uint64_t lost) const;
    void write_stacks(Lines& lines, std::vector<std::uint64_t>& object_stacks) const;

    std::uint32_t pid_, parent_;
    std::uint64_t started_ns_, ended_ns_ = 0;
    const Topology& topology_;
    bool sees_faults_, replaced_ = false, finishing_ = false;
    std::string program_, rank_;  // rank_: of an MPI program; else empty
    AddressSpace space_;
    std::vector<Module> modules_;
    std::vector<std::shared_ptr<RingReader>> rings_;  // its own, and those that it inherited
    std::uint32_t own_ring_ = 0;
    bool has_ring_ = false;
    std::vector<Thread> threads_;
    std::unordered_map<std::uint32_t, std::uint32_t> thread_numbers_;
    std::vector<Binding> bindings_;
    std::vector<RawStack> raw_stacks_;
    std::unordered_map<std::uint64_t, std::uint32_t> raw_numbers_;
    std::vector<Touch> waiting_;
    tsl::robin_map<std::uint64_t, Page> pages_;
    std::map<Key, Count> touches_;
    std::uint64_t again_ = 0;  // faults on pages that were touched before
    std::map<std::uint32_t, std::map<int, std::uint64_t>> placed_;  // object: pages by node
    std::map<std::tuple<std::uint32_t, int, int>, std::uint64_t> moved_;
    std::vector<std::tuple<std::uint64_t, int, std::uint64_t>> memory_;  // ns, node, pages
    bool skipped_pages_ = false;
    Accesses accesses_;
    Slices touched_slices_, accessed_slices_;  // first touches; sampled accesses
};

void write_nodes(Lines& lines, const Topology& topology);

}  // namespace assay::numa
