// Copies the arena of one process into its trace, while the process runs and after it has ended or
// was killed.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "profile/heap/arena.hpp"
#include "profile/record/fault_watch.hpp"
#include "profile/record/record.hpp"
#include "profile/trace/file.hpp"

namespace assay::heap {

class TraceRecorder {
public:
    // Maps the arena file and creates the trace file. `lost_faults`: page faults that were lost
    // before the process started. Throws Error.
    TraceRecorder(const std::string& arena, const std::string& trace, const Settings& settings,
                  std::uint64_t lost_faults);
    ~TraceRecorder();
    TraceRecorder(const TraceRecorder&) = delete;
    TraceRecorder& operator=(const TraceRecorder&) = delete;

    std::uint32_t pid() const { return header_->pid; }
    std::uint64_t start_ticks() const { return header_->start_ticks; }
    std::uint64_t start_ns() const { return header_->start_ns; }
    const std::string& error() const { return writer_.error(); }
    // Warnings about the recording, a line each, without the program's name.
    std::vector<std::string> warnings() const;
    std::string program() const;
    std::string executable() const;  // its path
    const std::string& trace_path() const { return trace_path_; }
    std::uint64_t written_bytes() const { return writer_.bytes(); }
    // Whether resident memory has reached dump_at, or has grown by half since the last dump.
    bool crosses_dump_threshold();

    bool drain();   // copies full buffers; false if there were none
    void sample();  // reads the process's memory use, every 10 ms
    void note_fault(const Fault& fault);
    bool has_ended();  // the process ended, became another program, or is detached
    void abandon();    // tells the process to stop recording
    // Copies the rest, partly filled buffers included, and writes the final process chunk.
    // `lost_faults`: page faults that were lost until now, of any process, since the kernel does
    // not say of which; `dropped_faults`: those of this process that the recorder dropped.
    // `is_replaced`: the process ended by exec.
    void finish(std::uint64_t lost_faults, std::uint64_t dropped_faults, bool is_replaced);

private:
    void copy_buffer(std::uint32_t index, std::size_t bytes);
    void write_nodes(std::uint32_t end, bool has_ended);
    void list_mappings();
    void sample_mappings();
    void write_samples();
    void write_mappings();
    void write_code();
    void write_unrecorded();
    void write_faults();
    void write_process(EndState ending);
    EndState ending() const;
    const BufferHeader* buffer(std::uint32_t index) const;
    BufferState state(std::uint32_t index) const;
    std::uint32_t count_nodes() const;
    std::uint32_t buffers_used() const;

    int arena_fd_ = -1;
    std::size_t arena_bytes_ = 0;
    ArenaHeader* header_;
    std::uint32_t buffer_count_ = 0;
    std::string arena_path_, trace_path_;
    const Settings& settings_;
    TraceWriter writer_;
    std::map<std::uint32_t, std::uint32_t> sequence_;  // number of the next buffer, by thread
    std::uint32_t nodes_written_ = first_node;
    int statm_;
    std::uint64_t process_start_;  // from /proc; detects a reused pid
    Bytes samples_, payload_;
    std::uint32_t sample_count_ = 0;
    std::uint64_t samples_first_ = 0, sample_time_ = 0;
    std::array<std::int64_t, 3> pages_{};
    Nanoseconds last_sample_ = 0;
    Bytes faults_;
    std::uint32_t fault_count_ = 0;
    std::uint64_t lost_before_;  // page faults, until the process started
    Fault first_fault_{}, last_fault_{};
    std::string mappings_;
    std::uint64_t mappings_time_ = 0;
    Nanoseconds last_list_ = 0, list_interval_ = 0;
    std::uint64_t resident_bytes_ = 0, next_dump_ = 0;

    static constexpr std::uint32_t first_node = 3;  // after the tree's roots
};

}  // namespace assay::heap
