// Drains one arena into a trace file, with samples of memory use, mappings and page faults.
#include "profile/record/trace_recorder.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "profile/record/executable.hpp"
#include "profile/record/mappings.hpp"
#include "profile/record/perf_map.hpp"
#include "profile/stack/machine.hpp"
#include "profile/stack/moment.hpp"

namespace assay::heap {
namespace {

constexpr Nanoseconds sample_ns = 10'000'000;
// Between two lists of mappings.
constexpr Nanoseconds first_list_interval_ns = 20'000'000, max_list_interval_ns = 10'000'000'000;
constexpr std::uint32_t faults_per_chunk = 4096;
constexpr std::uint32_t max_unused_nodes = 64;  // limit of gaps that killed threads leave

// Maps the arena and locks its file. The kernel releases the lock if this recorder is killed, which
// the hooks and other recorders detect.
ArenaHeader* map_arena(const std::string& path, int& arena_fd, std::size_t& bytes) {
    const int fd = arena_fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct stat status{};
    if (fd >= 0 && fstat(fd, &status) == 0) bytes = static_cast<std::size_t>(status.st_size);
    void* mapping = fd >= 0 && bytes >= arena_bytes(min_buffers)
                        ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                        : MAP_FAILED;
    const std::string reason = std::strerror(errno);
    if (mapping == MAP_FAILED && fd >= 0) close(fd);
    if (mapping == MAP_FAILED) throw Error("cannot read " + path + ": " + reason);
    auto* header = static_cast<ArenaHeader*>(mapping);
    if (header->magic != arena_magic || header->buffer_count > max_buffers ||
        arena_bytes(header->buffer_count) != bytes) {
        munmap(mapping, bytes);
        close(fd);
        throw Error(path + " was written by another version of Assay", "delete it");
    }
    flock(fd, LOCK_EX | LOCK_NB);
    header->recorder.store(static_cast<std::uint32_t>(getpid()), std::memory_order_relaxed);
    return header;
}

// The start time (field 22 of /proc/PID/stat) and the state of a process; 0 if there is none.
std::uint64_t read_start_time(std::uint32_t pid, char* state = nullptr) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    std::getline(in, line);
    const std::size_t name_end = line.rfind(')');
    if (name_end == std::string::npos) return 0;
    std::istringstream fields(line.substr(name_end + 1));
    std::string field;
    for (int k = 3; k <= 22 && fields >> field; ++k)
        if (k == 3 && state != nullptr) *state = field[0];
    return std::strtoull(field.c_str(), nullptr, 10);
}

}  // namespace

TraceRecorder::TraceRecorder(const std::string& arena, const std::string& trace,
                             const Settings& settings, std::uint64_t lost_faults)
    : header_(map_arena(arena, arena_fd_, arena_bytes_)),
      arena_path_(arena),
      trace_path_(trace),
      settings_(settings),
      writer_(trace),
      lost_before_(lost_faults) {
    statm_ = open(("/proc/" + std::to_string(pid()) + "/statm").c_str(), O_RDONLY | O_CLOEXEC);
    process_start_ = read_start_time(pid());
    buffer_count_ = header_->buffer_count;
    list_interval_ = first_list_interval_ns;
    last_list_ = now();
    write_process(EndState::none);
}

TraceRecorder::~TraceRecorder() {
    // A detached process keeps its mapping of the arena. This frees the memory behind it.
    if (ending() == EndState::detached)
        madvise(static_cast<void*>(header_), arena_bytes_, MADV_REMOVE);
    munmap(static_cast<void*>(header_), arena_bytes_);
    close(arena_fd_);
    if (statm_ >= 0) close(statm_);
    unlink(arena_path_.c_str());
}

const BufferHeader* TraceRecorder::buffer(std::uint32_t index) const {
    return reinterpret_cast<const BufferHeader*>(reinterpret_cast<const char*>(header_) +
                                                 buffers_offset +
                                                 std::size_t{index} * buffer_bytes);
}

BufferState TraceRecorder::state(std::uint32_t index) const {
    return static_cast<BufferState>(header_->buffer_states[index].load(std::memory_order_acquire));
}

// The program writes this number, so it is limited here.
std::uint32_t TraceRecorder::buffers_used() const {
    return std::min(header_->buffers_used.load(std::memory_order_acquire), buffer_count_);
}

bool TraceRecorder::drain() {
    std::vector<std::uint32_t> full;
    for (std::uint32_t index = 0; index < buffers_used(); ++index)
        if (state(index) == BufferState::full) full.push_back(index);
    std::ranges::sort(full, {}, [&](std::uint32_t index) {
        return std::pair(buffer(index)->thread, buffer(index)->sequence);
    });
    bool has_copied = false;
    for (const std::uint32_t index : full) {
        const BufferHeader* buffer_header = buffer(index);
        std::uint32_t& next = sequence_[buffer_header->thread];
        if (buffer_header->sequence != next)
            continue;  // an earlier buffer became full after this loop began
        copy_buffer(index, buffer_header->used.load(std::memory_order_acquire));
        ++next;
        header_->buffer_states[index].store(static_cast<std::uint32_t>(BufferState::free),
                                            std::memory_order_release);
        has_copied = true;
    }
    if (has_copied) {
        header_->buffers_freed.fetch_add(1, std::memory_order_release);
        syscall(SYS_futex, &header_->buffers_freed, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
    return has_copied;
}

// Copies a buffer unchanged, since packing it now would take processor time from the program.
void TraceRecorder::copy_buffer(std::uint32_t index, std::size_t bytes) {
    const BufferHeader* buffer_header = buffer(index);
    bytes =
        std::min<std::size_t>(bytes, buffer_room) / sizeof(std::uint64_t) * sizeof(std::uint64_t);
    if (bytes == 0) return;
    write_nodes(header_->nodes_used.load(std::memory_order_acquire), false);
    writer_.write({.kind = ChunkKind::raw,
                   .thread = buffer_header->thread,
                   .count = static_cast<std::uint32_t>(bytes / sizeof(std::uint64_t)),
                   .first = buffer_header->coarse_time,
                   .last = buffer_header->coarse_time},
                  {reinterpret_cast<const std::uint8_t*>(buffer_header + 1), bytes});
}

// Writes the new nodes up to `end`. Stops at a node that its thread has not filled yet, unless the
// process has ended.
void TraceRecorder::write_nodes(std::uint32_t end, bool has_ended) {
    auto* nodes = reinterpret_cast<stack::Node*>(reinterpret_cast<char*>(header_) + nodes_offset);
    Bytes payload;
    std::uint64_t before = 0;
    std::uint32_t n = nodes_written_;
    for (; n < end; ++n) {
        const std::uint64_t address =
            std::atomic_ref(nodes[n].address).load(std::memory_order_acquire);
        if (address == 0 && !has_ended) break;
        put_varint(payload, nodes[n].parent);
        put_varint(payload, zigzag(static_cast<std::int64_t>(address - before)));
        before = address;
    }
    if (n == nodes_written_) return;
    writer_.write(
        {.kind = ChunkKind::nodes, .count = n - nodes_written_, .first = nodes_written_, .last = n},
        payload);
    nodes_written_ = n;
}

namespace {

// Whether memory of the arena can be read. Reading a hole of its file allocates a page, which fails
// if the file system is full.
bool is_readable(const void* address) {
    constexpr int madv_populate_read = 22;
    auto* page =
        reinterpret_cast<void*>(reinterpret_cast<std::uint64_t>(address) & ~std::uint64_t{4095});
    return madvise(page, 4096, madv_populate_read) == 0 || errno != EFAULT;
}

}  // namespace

// The number of nodes, including those that a killed process had not published in nodes_used.
std::uint32_t TraceRecorder::count_nodes() const {
    const auto* nodes =
        reinterpret_cast<const stack::Node*>(reinterpret_cast<const char*>(header_) + nodes_offset);
    std::uint32_t end =
        std::max(header_->nodes_used.load(std::memory_order_acquire), nodes_written_);
    for (std::uint32_t n = end; n < node_count && n < end + max_unused_nodes; ++n) {
        if (!is_readable(nodes + n)) break;
        if (nodes[n].address != 0) end = n + 1;
    }
    return end;
}

void TraceRecorder::sample() {
    const Nanoseconds t = now();
    sample_mappings();
    if (statm_ < 0 || t - last_sample_ < sample_ns) return;
    last_sample_ = t;
    char text[128];
    const ssize_t n = pread(statm_, text, sizeof text - 1, 0);
    if (n <= 0) return;
    text[n] = 0;
    std::array<std::int64_t, 3> pages;  // virtual, resident, shared
    const char* field = text;
    for (std::int64_t& count : pages) {
        char* end = nullptr;
        count = std::strtoll(field, &end, 10);
        if (end == field) return;
        field = end;
    }
    if (pages[0] == 0) return;
    resident_bytes_ =
        static_cast<std::uint64_t>(pages[1]) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::uint64_t time = stack::ticks() >> time_shift;
    if (sample_count_ == 0) {
        samples_first_ = sample_time_ = time;
        pages_ = {};
    }
    put_varint(samples_, time - sample_time_);
    for (std::size_t k = 0; k < pages.size(); ++k) {
        put_varint(samples_, zigzag(pages[k] - pages_[k]));
        pages_[k] = pages[k];
    }
    sample_time_ = time;
    if (++sample_count_ == 64) write_samples();
}

// Lists the mappings for a process that is killed, at growing intervals, since it takes time and
// the set of mappings changes rarely.
void TraceRecorder::sample_mappings() {
    const Nanoseconds t = now();
    if (t - last_list_ < list_interval_) return;
    last_list_ = t;
    list_interval_ = std::min(2 * list_interval_, max_list_interval_ns);
    list_mappings();
}

void TraceRecorder::list_mappings() {
    const std::uint64_t ticks = stack::ticks();
    if (std::string list = list_object_mappings(pid()); !list.empty()) {
        mappings_ = std::move(list);
        mappings_time_ = ticks;
    }
}

void TraceRecorder::write_mappings() {
    if (mappings_.empty()) return;
    writer_.write(
        {.kind = ChunkKind::mappings, .count = 1, .first = mappings_time_, .last = mappings_time_},
        {reinterpret_cast<const std::uint8_t*>(mappings_.data()), mappings_.size()});
}

void TraceRecorder::write_code() {
    const auto* nodes =
        reinterpret_cast<const stack::Node*>(reinterpret_cast<const char*>(header_) + nodes_offset);
    const std::string symbols = jit_symbols(pid(), {nodes + first_node, nodes + nodes_written_});
    if (symbols.empty()) return;
    writer_.write({.kind = ChunkKind::code, .count = 1, .first = 0, .last = 0},
                  {reinterpret_cast<const std::uint8_t*>(symbols.data()), symbols.size()});
}

// The process writes these bytes, so the reader of the trace validates them.
void TraceRecorder::write_unrecorded() {
    const std::uint32_t used =
        std::min(header_->notes_used.load(std::memory_order_acquire), std::uint32_t{notes_bytes});
    if (used == 0) return;
    writer_.write({.kind = ChunkKind::unrecorded,
                   .count = header_->notes_left_out.load(std::memory_order_relaxed)},
                  {reinterpret_cast<const std::uint8_t*>(header_->notes), used});
}

void TraceRecorder::note_fault(const Fault& fault) {
    if (fault_count_ == 0) {
        first_fault_ = fault;
        last_fault_ = {0, 0, fault.ns, 0, 0, {}};
    }
    const auto delta = [](std::uint64_t now, std::uint64_t before) {
        return zigzag(static_cast<std::int64_t>(now - before));
    };
    put_varint(faults_, delta(fault.ns, last_fault_.ns));
    put_varint(faults_, fault.tid);
    put_varint(faults_, delta(fault.pc, last_fault_.pc));
    put_varint(faults_, delta(fault.address, last_fault_.address));
    for (std::size_t k = 0; k < fault_stack_words; ++k)
        put_varint(faults_, delta(fault.stack[k], last_fault_.stack[k]));
    last_fault_ = fault;
    if (++fault_count_ == faults_per_chunk) write_faults();
}

void TraceRecorder::write_faults() {
    writer_.write({.kind = ChunkKind::faults,
                   .count = fault_count_,
                   .first = first_fault_.ns,
                   .last = last_fault_.ns},
                  faults_);
    faults_.clear();
    fault_count_ = 0;
}

void TraceRecorder::write_samples() {
    if (sample_count_ == 0) return;
    writer_.write({.kind = ChunkKind::samples,
                   .count = sample_count_,
                   .first = samples_first_ << time_shift,
                   .last = sample_time_ << time_shift},
                  samples_);
    samples_.clear();
    sample_count_ = 0;
}

bool TraceRecorder::crosses_dump_threshold() {
    if (settings_.dump_at == 0 || resident_bytes_ < std::max(settings_.dump_at, next_dump_))
        return false;
    next_dump_ = resident_bytes_ + resident_bytes_ / 2;
    return true;
}

EndState TraceRecorder::ending() const {
    return static_cast<EndState>(header_->end_state.load(std::memory_order_acquire));
}

bool TraceRecorder::has_ended() {
    if (ending() == EndState::detached) return true;
    char state = 'X';
    const std::uint64_t start = read_start_time(pid(), &state);
    return start == 0 || start != process_start_ || state == 'Z' || state == 'X';
}

void TraceRecorder::abandon() { header_->recorder_gone.store(1, std::memory_order_release); }

void TraceRecorder::finish(std::uint64_t lost_faults, std::uint64_t dropped_faults,
                           bool is_replaced) {
    while (drain()) {
    }
    for (std::uint32_t index = 0; index < buffers_used(); ++index)
        if (state(index) == BufferState::filling && is_readable(buffer(index)))
            copy_buffer(index, buffer(index)->used.load(std::memory_order_acquire));
    write_nodes(count_nodes(), true);
    write_code();
    write_unrecorded();
    write_samples();
    if (ending() == EndState::detached) list_mappings();
    write_mappings();
    if (settings_.watches_faults) write_faults();
    if (const std::uint64_t lost = lost_faults - lost_before_ + dropped_faults; lost > 0)
        writer_.write({.kind = ChunkKind::lost_faults, .count = 1, .first = lost}, {});
    write_process(is_replaced && ending() == EndState::none ? EndState::exited : ending());
}

std::string TraceRecorder::program() const {
    return {header_->program, strnlen(header_->program, sizeof header_->program)};
}

std::string TraceRecorder::executable() const {
    return {header_->executable, strnlen(header_->executable, sizeof header_->executable)};
}

std::vector<std::string> TraceRecorder::warnings() const {
    std::vector<std::string> lines;
    if (header_->own_allocator == 1)
        lines.emplace_back(
            "the executable has a malloc of its own: its own calls and operator new are not "
            "recorded, calls of malloc by its libraries are");
    else if (const std::string& name = unhooked_allocator(executable()); !name.empty())
        lines.push_back("the executable has an allocator of its own under another name (" + name +
                        "): what it allocates there is not recorded");
    if (const auto lost = header_->lost_events.load(std::memory_order_relaxed); lost > 0) {
        const auto shortage = static_cast<Shortage>(header_->shortage.load());
        lines.push_back(std::to_string(lost) + " events were not recorded" +
                        (shortage == Shortage::memory
                             ? ": the file system of the buffers (" +
                                   arena_path_.substr(0, arena_path_.rfind('/')) + ") is full"
                         : shortage == Shortage::buffers
                             ? ": more than " + std::to_string(buffer_count_) + " threads at a time"
                         : shortage == Shortage::sampled
                             ? ": too many sampled blocks live at a time; give a larger --sample"
                             : ""));
    }
    return lines;
}

void TraceRecorder::write_process(EndState ending) {
    const stack::Moment end = stack::read_moment();
    ProcessInfo info{.pid = header_->pid,
                     .parent = header_->parent,
                     .start_ticks = header_->start_ticks,
                     .start_ns = header_->start_ns,
                     .end_ticks = end.ticks,
                     .end_ns = end.ns,
                     .lost = header_->lost_events.load(std::memory_order_relaxed),
                     .end_state = static_cast<std::uint32_t>(ending),
                     .page_bytes = static_cast<std::uint32_t>(sysconf(_SC_PAGESIZE)),
                     .min_block_bytes = settings_.min_block_bytes,
                     .sample_bytes = settings_.sample_bytes};
    payload_.resize(sizeof info);
    std::memcpy(payload_.data(), &info, sizeof info);
    std::string text = program();
    const std::string rank(header_->rank, strnlen(header_->rank, sizeof header_->rank));
    const bool is_attached =
        settings_.process != 0 && header_->pid == static_cast<std::uint32_t>(settings_.process);
    if (!rank.empty() || is_attached) text += '\0' + rank;
    if (is_attached) text += '\0' + std::to_string(settings_.ran_ns);
    payload_.insert(payload_.end(), text.begin(), text.end());
    writer_.write(
        {.kind = ChunkKind::process, .count = 1, .first = info.start_ticks, .last = info.end_ticks},
        payload_);
}

}  // namespace assay::heap
