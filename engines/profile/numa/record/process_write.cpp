// Writes the recording of a process. python/assay/numa/recording.py defines the rows.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "profile/numa/record/process.hpp"
#include "profile/numa/record/unwind.hpp"

namespace assay::numa {
namespace {

constexpr std::uint64_t written_page_bytes = 4096;

List<int> as_list(const std::vector<int>& numbers) { return {numbers.data(), numbers.size()}; }
Text as_text(const std::string& text) { return {text.data(), text.size()}; }

std::vector<int> set_bits(std::uint64_t mask) {
    std::vector<int> numbers;
    for (int bit = 0; bit < 64; ++bit)
        if ((mask >> bit & 1) != 0) numbers.push_back(bit);
    return numbers;
}

}  // namespace

void write_nodes(Lines& lines, const Topology& topology) {
    for (const Node& node : topology.nodes)
        lines.write("node", node.id, as_list(node.processors), node.memory,
                    as_list(node.distances));
}

void Process::write_threads(Lines& lines) const {
    for (std::size_t k = 0; k < threads_.size(); ++k)
        lines.write("thread", static_cast<std::uint64_t>(k), threads_[k].tid,
                    as_text(threads_[k].name));
    for (const Binding& binding : bindings_)
        lines.write("binding", binding.thread, binding.ns - std::min(binding.ns, started_ns_),
                    as_list(parse_list(binding.affinity)), binding.policy.mode,
                    as_list(set_bits(binding.policy.nodes)));
}

// Writes the stacks: raw stacks have the numbers from 1 on, in their order; the allocating stacks
// of objects follow. `object_stacks` receives the stack number of each object, 0 without one.
void Process::write_stacks(Lines& lines, std::vector<std::uint64_t>& object_stacks) const {
    StackUnwinder unwinder(modules_);
    std::uint64_t number = 0;
    const auto write_stack = [&](const std::vector<std::uint64_t>& addresses) {
        lines.write("stack", ++number, List<std::uint64_t>{addresses.data(), addresses.size()});
        return number;
    };
    for (const RawStack& stack : raw_stacks_) write_stack(unwinder.walk(stack));
    for (const Object& object : space_.objects()) {
        const bool has_stack = object.stack != 0 && object.ring < rings_.size();
        const std::vector<std::uint64_t> addresses =
            has_stack ? rings_[object.ring]->stack(object.stack) : std::vector<std::uint64_t>();
        object_stacks.push_back(addresses.empty() ? 0 : write_stack(addresses));
    }
}

void Process::write(const std::string& folder, int serial, const std::string& fault_note,
                    std::uint64_t lost, const Sampling& sampling) const {
    if (touches_.empty() && resident_pages_.empty() && accesses_.empty()) return;
    const bool has_samples = !sampling.events.empty();
    const std::string path = fmt::format("{}/{}.{}.numa", folder, pid_, serial);
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return;
    {
        Lines lines(fd);
        lines.write("process", recording_version, Text(has_samples ? "sample" : "touch"), pid_,
                    parent_, written_page_bytes,
                    topology_.emulated ? static_cast<int>(topology_.nodes.size()) : 0,
                    as_text(command_line_), as_text(rank_));
        write_nodes(lines, topology_);
        for (const Module& module : modules_)
            lines.write("module", module.bias, module.begin, module.end, as_text(module.path));
        write_threads(lines);
        std::vector<std::uint64_t> object_stacks;
        write_stacks(lines, object_stacks);
        const std::vector<Object>& objects = space_.objects();
        for (std::size_t k = 0; k < objects.size(); ++k)
            lines.write("object", static_cast<std::uint64_t>(k), Text(name_of(objects[k].kind)),
                        as_text(objects[k].name), object_stacks[k], objects[k].bytes,
                        objects[k].count);
        for (const auto& [key, counted] : touches_) {
            const auto& [object, stack, thread, thread_node, node, mode] = key;
            if (counted.pages > 0)
                lines.write("touch", object, stack + 1, thread, thread_node, node, mode,
                            counted.pages, counted.huge_pages);
        }
        accesses_.write(lines);
        if (has_samples)
            lines.write("sampling", as_text(sampling.events), sampling.period, sampling.throttled,
                        List<std::uint64_t>{accesses_.level_counts().data(), memory_levels});
        write_slices(lines, has_samples ? accessed_slices_ : touched_slices_);
        for (const auto& [object, nodes] : resident_pages_)
            for (const auto& [node, pages] : nodes) lines.write("placed", object, node, pages);
        for (const auto& [key, pages] : moved_pages_) {
            const auto& [object, old_node, new_node] = key;
            lines.write("moved", object, old_node, new_node, pages);
        }
        for (const auto& [ns, node, pages] : node_pages_)
            lines.write("memory", ns - std::min(ns, started_ns_), node, pages);
        write_end(lines, fault_note, lost);
    }
    close(fd);
}

void Process::write_slices(Lines& lines, const Slices& slices) const {
    for (std::size_t k = 0; k < slices.all().size(); ++k) {
        const Slices::Slice& slice = slices.all()[k];
        lines.write("slice", k * slices.width_ns(), slices.width_ns(), slice.local, slice.remote,
                    slice.unknown);
    }
}

void Process::write_end(Lines& lines, const std::string& fault_note, std::uint64_t lost) const {
    if (!fault_note.empty()) lines.write("note", as_text(fault_note));
    if (skipped_mappings_)
        lines.write("note", Text("mappings of more than 64 GiB were not looked through"));
    std::uint64_t lost_events = lost;
    if (has_ring_) lost_events += rings_[ring_number_]->lost();
    if (!has_ring_)
        lines.write("note", Text("allocations are not known: the program is static, setuid, or "
                                 "clears its environment"));
    lines.write("end", ended_ns_ - std::min(ended_ns_, started_ns_), lost_events, repeated_faults_);
}

}  // namespace assay::numa
