#include "profile/record/spool.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "profile/record/mappings.hpp"
#include "profile/record/perf_map.hpp"
#include "profile/stack/machine.hpp"

namespace assay::heap {
namespace {

constexpr Nanoseconds sample_ns = 10'000'000;
constexpr Nanoseconds first_list_ns = 20'000'000,
                      longest_pause_ns = 10'000'000'000;  // between lists of mappings
constexpr std::uint32_t faults_at_once = 4096;            // in a chunk
constexpr std::uint32_t nodes_gap = 64;  // numbers that threads may have taken and not used

// `lock`: held on the file as long as it is open. Who comes after a recorder that was killed sees
// that it is gone.
Header* map_arena(const std::string& path, int& lock) {
    const int fd = lock = open(path.c_str(), O_RDWR | O_CLOEXEC);
    void* at = fd >= 0 ? mmap(nullptr, arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                       : MAP_FAILED;
    const std::string why = std::strerror(errno);
    if (at == MAP_FAILED && fd >= 0) close(fd);
    if (at == MAP_FAILED) throw Error("cannot read " + path + ": " + why);
    auto* header = static_cast<Header*>(at);
    if (header->magic != arena_magic) {
        munmap(at, arena_bytes);
        close(fd);
        throw Error(path + " was left by another version of Assay", "delete it");
    }
    flock(fd, LOCK_EX | LOCK_NB);
    header->recorder.store(static_cast<std::uint32_t>(getpid()), std::memory_order_relaxed);
    return header;
}

// Field 22 of /proc/PID/stat, and its state; 0 when there is no such process.
std::uint64_t start_of(std::uint32_t pid, char* state = nullptr) {
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

std::uint64_t real_time_ns() {
    timespec t{};
    clock_gettime(CLOCK_REALTIME, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(t.tv_nsec);
}

}  // namespace

Spool::Spool(const std::string& arena, const std::string& trace, const Settings& settings)
    : header_(map_arena(arena, lock_)),
      arena_(arena),
      trace_(trace),
      settings_(settings),
      writer_(trace) {
    statm_ = open(("/proc/" + std::to_string(pid()) + "/statm").c_str(), O_RDONLY | O_CLOEXEC);
    process_start_ = start_of(pid());
    list_pause_ = first_list_ns;
    listed_ = now();
    write_process(Ending::none);
}

Spool::~Spool() {
    // A process that goes on has it mapped still, and no use for it.
    if (ending() == Ending::left) madvise(static_cast<void*>(header_), arena_bytes, MADV_REMOVE);
    munmap(static_cast<void*>(header_), arena_bytes);
    close(lock_);
    if (statm_ >= 0) close(statm_);
    unlink(arena_.c_str());
}

const BufferHead* Spool::buffer(std::uint32_t index) const {
    return reinterpret_cast<const BufferHead*>(reinterpret_cast<const char*>(header_) +
                                               header_bytes + std::size_t{index} * buffer_bytes);
}

BufferState Spool::state(std::uint32_t index) const {
    return static_cast<BufferState>(header_->state[index].load(std::memory_order_acquire));
}

bool Spool::drain() {
    std::vector<std::uint32_t> full;
    for (std::uint32_t index = 0; index < buffer_count; ++index)
        if (state(index) == BufferState::full) full.push_back(index);
    std::ranges::sort(full, {}, [&](std::uint32_t index) {
        return std::pair(buffer(index)->thread, buffer(index)->sequence);
    });
    bool any = false;
    for (const std::uint32_t index : full) {
        const BufferHead* head = buffer(index);
        std::uint32_t& next = sequence_[head->thread];
        if (head->sequence != next)
            continue;  // an earlier one was handed over after this look began
        take(index, head->used.load(std::memory_order_acquire));
        ++next;
        header_->state[index].store(static_cast<std::uint32_t>(BufferState::free),
                                    std::memory_order_release);
        any = true;
    }
    if (any) {
        header_->freed.fetch_add(1, std::memory_order_release);
        syscall(SYS_futex, &header_->freed, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
    return any;
}

// As it is: to pack it now would take time that the program wants for itself.
void Spool::take(std::uint32_t index, std::size_t bytes) {
    const BufferHead* head = buffer(index);
    bytes =
        std::min<std::size_t>(bytes, buffer_room) / sizeof(std::uint64_t) * sizeof(std::uint64_t);
    if (bytes == 0) return;
    write_nodes(header_->nodes_used.load(std::memory_order_acquire), false);
    writer_.write({.kind = ChunkKind::raw,
                   .thread = head->thread,
                   .count = static_cast<std::uint32_t>(bytes / sizeof(std::uint64_t)),
                   .first = head->step,
                   .last = head->step},
                  {reinterpret_cast<const std::uint8_t*>(head + 1), bytes});
}

// Up to one that its thread has taken and not yet filled, while that may still come.
void Spool::write_nodes(std::uint32_t end, bool is_over) {
    auto* nodes = reinterpret_cast<stack::Node*>(reinterpret_cast<char*>(header_) + nodes_offset);
    Bytes payload;
    std::uint64_t before = 0;
    std::uint32_t n = nodes_written_;
    for (; n < end; ++n) {
        const std::uint64_t address =
            std::atomic_ref(nodes[n].address).load(std::memory_order_acquire);
        if (address == 0 && !is_over) break;
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

// Of a process that was killed: also the nodes that it had no time to announce.
std::uint32_t Spool::nodes_end() const {
    const auto* nodes =
        reinterpret_cast<const stack::Node*>(reinterpret_cast<const char*>(header_) + nodes_offset);
    std::uint32_t end =
        std::max(header_->nodes_used.load(std::memory_order_acquire), nodes_written_);
    for (std::uint32_t n = end; n < node_count && n < end + nodes_gap; ++n)
        if (nodes[n].address != 0) end = n + 1;
    return end;
}

void Spool::sample() {
    const Nanoseconds t = now();
    list_mappings();
    if (statm_ < 0 || t - sampled_ < sample_ns) return;
    sampled_ = t;
    char text[128];
    const ssize_t n = pread(statm_, text, sizeof text - 1, 0);
    if (n <= 0) return;
    text[n] = 0;
    std::int64_t pages[2] = {0, 0};
    if (std::sscanf(text, "%ld %ld", &pages[0], &pages[1]) != 2 || pages[0] == 0) return;
    resident_ =
        static_cast<std::uint64_t>(pages[1]) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::uint64_t time = stack::ticks() >> time_shift;
    if (sample_count_ == 0) {
        samples_first_ = sample_time_ = time;
        pages_[0] = pages_[1] = 0;
    }
    put_varint(samples_, time - sample_time_);
    for (int k = 0; k < 2; ++k) {
        put_varint(samples_, zigzag(pages[k] - pages_[k]));
        pages_[k] = pages[k];
    }
    sample_time_ = time;
    if (++sample_count_ == 64) write_samples();
}

// Seldom, and ever more so: it is not for nothing, and what a program's own variables take changes
// little.
void Spool::list_mappings() {
    const Nanoseconds t = now();
    if (t - listed_ < list_pause_) return;
    listed_ = t;
    list_pause_ = std::min(2 * list_pause_, longest_pause_ns);
    const std::uint64_t ticks = stack::ticks();
    if (std::string list = mappings_of(pid()); !list.empty()) {
        mappings_ = std::move(list);
        mappings_time_ = ticks;
    }
}

void Spool::write_mappings() {
    if (mappings_.empty()) return;
    writer_.write(
        {.kind = ChunkKind::mappings, .count = 1, .first = mappings_time_, .last = mappings_time_},
        {reinterpret_cast<const std::uint8_t*>(mappings_.data()), mappings_.size()});
}

void Spool::write_code() {
    const auto* nodes =
        reinterpret_cast<const stack::Node*>(reinterpret_cast<const char*>(header_) + nodes_offset);
    const std::string names = names_of_code(pid(), {nodes + stack_first, nodes + nodes_written_});
    if (names.empty()) return;
    writer_.write({.kind = ChunkKind::code, .count = 1, .first = 0, .last = 0},
                  {reinterpret_cast<const std::uint8_t*>(names.data()), names.size()});
}

void Spool::note_fault(const Fault& fault) {
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
    for (std::size_t k = 0; k < stack_words; ++k)
        put_varint(faults_, delta(fault.words[k], last_fault_.words[k]));
    last_fault_ = fault;
    if (++fault_count_ == faults_at_once) write_faults();
}

void Spool::write_faults() {
    writer_.write({.kind = ChunkKind::faults,
                   .count = fault_count_,
                   .first = first_fault_.ns,
                   .last = last_fault_.ns},
                  faults_);
    faults_.clear();
    fault_count_ = 0;
}

void Spool::write_samples() {
    if (sample_count_ == 0) return;
    writer_.write({.kind = ChunkKind::samples,
                   .count = sample_count_,
                   .first = samples_first_ << time_shift,
                   .last = sample_time_ << time_shift},
                  samples_);
    samples_.clear();
    sample_count_ = 0;
}

bool Spool::passes_threshold() {
    if (settings_.dump_at == 0 || resident_ < std::max(settings_.dump_at, next_dump_)) return false;
    next_dump_ = resident_ + resident_ / 2;
    return true;
}

Ending Spool::ending() const {
    return static_cast<Ending>(header_->ended.load(std::memory_order_acquire));
}

bool Spool::is_over() {
    if (ending() == Ending::left) return true;
    char state = 'X';
    const std::uint64_t start = start_of(pid(), &state);
    return start == 0 || start != process_start_ || state == 'Z' || state == 'X';
}

void Spool::abandon() { header_->recorder_gone.store(1, std::memory_order_release); }

void Spool::finish(bool is_replaced) {
    while (drain()) {
    }
    for (std::uint32_t index = 0; index < buffer_count; ++index)
        if (state(index) == BufferState::filling)
            take(index, buffer(index)->used.load(std::memory_order_acquire));
    write_nodes(nodes_end(), true);
    write_code();
    write_samples();
    write_mappings();
    if (settings_.watches_faults) write_faults();
    write_process(is_replaced && ending() == Ending::none ? Ending::by_itself : ending());
}

void Spool::write_process(Ending ending) {
    Process process{.pid = header_->pid,
                    .parent = header_->parent,
                    .start_ticks = header_->start_ticks,
                    .start_ns = header_->start_ns,
                    .end_ticks = stack::ticks(),
                    .end_ns = real_time_ns(),
                    .lost = header_->lost.load(std::memory_order_relaxed),
                    .complete = static_cast<std::uint32_t>(ending),
                    .page_bytes = static_cast<std::uint32_t>(sysconf(_SC_PAGESIZE)),
                    .at_least = settings_.at_least,
                    .sample = settings_.sample};
    payload_.resize(sizeof process);
    std::memcpy(payload_.data(), &process, sizeof process);
    std::string words(header_->program, strnlen(header_->program, sizeof header_->program));
    const std::string rank(header_->rank, strnlen(header_->rank, sizeof header_->rank));
    const bool is_attached =
        settings_.process != 0 && header_->pid == static_cast<std::uint32_t>(settings_.process);
    if (!rank.empty() || is_attached) words += '\0' + rank;
    if (is_attached) words += '\0' + std::to_string(settings_.ran_ns);
    payload_.insert(payload_.end(), words.begin(), words.end());
    writer_.write({.kind = ChunkKind::process,
                   .count = 1,
                   .first = process.start_ticks,
                   .last = process.end_ticks},
                  payload_);
}

}  // namespace assay::heap
