// Empties the arena of one process into its trace, while it runs and after it has ended, however it
// ended.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "profile/heap/arena.hpp"
#include "profile/record/faults.hpp"
#include "profile/record/record.hpp"
#include "profile/trace/file.hpp"

namespace assay::heap {

class Spool {
public:
    // `arena`: the file that the process has made; `trace`: the one to write. Throws Error.
    Spool(const std::string& arena, const std::string& trace, const Settings& settings);
    ~Spool();
    Spool(const Spool&) = delete;
    Spool& operator=(const Spool&) = delete;

    std::uint32_t pid() const { return header_->pid; }
    std::uint64_t started() const { return header_->start_ticks; }
    const std::string& failed() const { return writer_.failed(); }
    const std::string& trace() const { return trace_; }
    std::uint64_t written() const { return writer_.bytes(); }
    // More is in memory than a profile was asked for at, and half as much again than at the last
    // one.
    bool passes_threshold();

    bool drain();   // what has been handed over; false when nothing was
    void sample();  // memory of the process, now and then
    void note_fault(const Fault& fault);
    bool is_over();  // the process has ended, runs another program now, or was left
    void abandon();  // the process goes on unrecorded
    void finish(bool is_replaced = false);  // the rest, also of buffers half-filled, and the last
                                            // word; by another program

private:
    void take(std::uint32_t index, std::size_t bytes);
    void write_nodes(std::uint32_t end, bool is_over);
    void list_mappings();
    void write_samples();
    void write_mappings();
    void write_code();
    void write_faults();
    void write_process(Ending ending);
    Ending ending() const;
    const BufferHead* buffer(std::uint32_t index) const;
    BufferState state(std::uint32_t index) const;
    std::uint32_t nodes_end() const;

    int lock_ = -1;
    Header* header_;
    std::string arena_, trace_;
    const Settings& settings_;
    TraceWriter writer_;
    std::map<std::uint32_t, std::uint32_t> sequence_;  // of each thread's buffer to come
    std::uint32_t nodes_written_ = stack_first;
    int statm_;
    std::uint64_t process_start_;  // as the kernel tells it: a process number may be used again
    Bytes samples_, payload_;
    std::uint32_t sample_count_ = 0;
    std::uint64_t samples_first_ = 0, sample_time_ = 0;
    std::int64_t pages_[2] = {0, 0};
    Nanoseconds sampled_ = 0;
    Bytes faults_;
    std::uint32_t fault_count_ = 0;
    Fault first_fault_{}, last_fault_{};
    std::string mappings_;
    std::uint64_t mappings_time_ = 0;
    Nanoseconds listed_ = 0, list_pause_ = 0;
    std::uint64_t resident_ = 0, next_dump_ = 0;  // bytes

    static constexpr std::uint32_t stack_first = 3;  // after the roots
};

}  // namespace assay::heap
