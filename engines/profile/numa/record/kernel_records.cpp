// Parses the records of a perf event's ring buffer into kernel events.
#include "profile/numa/record/kernel_records.hpp"

#include <linux/perf_event.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace assay::numa {
namespace {

// Layouts of the kernel's records (perf_event_open(2)).
struct Sample {
    std::uint64_t id, ip;
    std::uint32_t pid, tid;
    std::uint64_t time, address;
    std::uint32_t processor, unused;
};
struct SampleIds {  // the trailer of all records but samples (sample_id_all)
    std::uint32_t pid, tid;
    std::uint64_t time;
    std::uint32_t processor, unused;
    std::uint64_t id;
};
struct MmapRecord {
    std::uint32_t pid, tid;
    std::uint64_t address, bytes, offset;
    std::uint32_t major, minor;
    std::uint64_t inode, generation;
    std::uint32_t protection, flags;
};
struct TaskRecord {
    std::uint32_t pid, parent, tid, parent_tid;
    std::uint64_t time;
};

// The bytes of one record, which may wrap around the ring's end.
class Record {
public:
    Record(RingBytes ring, std::uint64_t begin, std::size_t size)
        : ring_(ring), next_(begin), remaining_(size) {}
    std::size_t remaining() const { return remaining_; }
    // Returns false and reads nothing if fewer than `size` bytes remain.
    bool read(void* buffer, std::size_t size) {
        if (size > remaining_) return false;
        const std::size_t begin = next_ % ring_.bytes, first = std::min(size, ring_.bytes - begin);
        std::memcpy(buffer, ring_.data + begin, first);
        std::memcpy(static_cast<char*>(buffer) + first, ring_.data, size - first);
        next_ += size;
        remaining_ -= size;
        return true;
    }
    bool skip(std::uint64_t size) {
        if (size > remaining_) return false;
        next_ += size;
        remaining_ -= size;
        return true;
    }

private:
    RingBytes ring_;
    std::uint64_t next_;
    std::size_t remaining_;
};

// Reads the registers and the copy of the stack. Returns false for a malformed record.
bool read_registers(Record& record, KernelEvent& event) {
    std::uint64_t registers_abi = 0, copied_bytes = 0, used_words = 0;
    if (!record.read(&registers_abi, sizeof registers_abi)) return false;
    if (registers_abi != PERF_SAMPLE_REGS_ABI_NONE) {
        std::uint64_t registers[3];  // in the order of their numbers: BP, SP, IP
        if (!record.read(registers, sizeof registers)) return false;
        event.bp = registers[0];
        event.sp = registers[1];
        event.ip = registers[2];
    }
    if (!record.read(&copied_bytes, sizeof copied_bytes)) return false;
    if (copied_bytes == 0) return true;
    const std::uint64_t kept_bytes = std::min<std::uint64_t>(copied_bytes, sizeof event.stack);
    if (!record.read(event.stack.data(), kept_bytes) || !record.skip(copied_bytes - kept_bytes) ||
        !record.read(&used_words, sizeof used_words))
        return false;
    event.used_words = static_cast<std::uint32_t>(std::min(used_words, kept_bytes) / 8);
    return true;
}

enum class Outcome : std::uint8_t { complete, skipped, malformed };

Outcome read_sample(Record& record, std::uint16_t misc, const AccessEvents& accesses,
                    KernelEvent& event) {
    Sample sample{};
    if (!record.read(&sample, sizeof sample)) return Outcome::malformed;
    event.ns = sample.time;
    event.pid = sample.pid;
    event.tid = sample.tid;
    event.processor = static_cast<int>(sample.processor);
    event.address = sample.address;
    event.ip = sample.ip;
    if (!read_registers(record, event)) return Outcome::malformed;
    const auto access = accesses.find(sample.id);
    if (access == accesses.end()) return Outcome::complete;
    event.kind = KernelEvent::Kind::access;
    event.ip = sample.ip;  // the accessing instruction; the registers may belong to a later one
    std::uint64_t source = 0;
    if (!record.read(&source, sizeof source)) return Outcome::malformed;
    event.source = read_data_source(source);
    if (access->second != Operation::none) event.source.operation = access->second;
    const bool by_program = (misc & PERF_RECORD_MISC_CPUMODE_MASK) == PERF_RECORD_MISC_USER;
    return by_program && event.source.operation != Operation::none ? Outcome::complete
                                                                   : Outcome::skipped;
}

Outcome read_mapping(Record& record, KernelEvent& event) {
    MmapRecord mapping{};
    if (!record.read(&mapping, sizeof mapping) || record.remaining() < sizeof(SampleIds))
        return Outcome::malformed;
    event.kind = KernelEvent::Kind::map;
    event.pid = mapping.pid;
    event.tid = mapping.tid;
    event.address = mapping.address;
    event.bytes = mapping.bytes;
    event.offset = mapping.offset;
    event.executable = (mapping.protection & PROT_EXEC) != 0;
    event.name.resize(record.remaining() - sizeof(SampleIds));
    record.read(event.name.data(), event.name.size());
    event.name.resize(std::strlen(event.name.c_str()));
    return Outcome::complete;
}

Outcome read_process(Record& record, std::uint32_t type, KernelEvent& event) {
    TaskRecord task{};
    if (!record.read(&task, sizeof task)) return Outcome::malformed;
    event.kind = type == PERF_RECORD_FORK ? KernelEvent::Kind::start : KernelEvent::Kind::exit;
    event.pid = task.pid;
    event.tid = task.tid;
    event.parent = task.parent;
    return Outcome::complete;
}

// Reads a record other than samples, lost counts and throttling.
Outcome read_other(Record record, const perf_event_header& header, KernelEvent& event) {
    Record end = record;
    SampleIds ids{};
    if (record.remaining() < sizeof ids || !end.skip(record.remaining() - sizeof ids) ||
        !end.read(&ids, sizeof ids))
        return Outcome::malformed;
    Outcome outcome = Outcome::skipped;
    if (header.type == PERF_RECORD_MMAP2) {
        outcome = read_mapping(record, event);
    } else if (header.type == PERF_RECORD_FORK || header.type == PERF_RECORD_EXIT) {
        outcome = read_process(record, header.type, event);
    } else if (header.type == PERF_RECORD_COMM && (header.misc & PERF_RECORD_MISC_COMM_EXEC) != 0) {
        event.kind = KernelEvent::Kind::exec;
        event.pid = ids.pid;
        event.tid = ids.tid;
        outcome = Outcome::complete;
    }
    event.ns = ids.time;
    return outcome;
}

}  // namespace

void read_records(RingBytes ring, std::uint64_t tail, std::uint64_t head,
                  const AccessEvents& accesses, const std::function<void(KernelEvent&&)>& handle,
                  Losses& losses) {
    if (head - tail > ring.bytes) {
        ++losses.lost;
        return;
    }
    while (tail != head) {
        perf_event_header header{};
        if (!Record(ring, tail, head - tail).read(&header, sizeof header) ||
            header.size < sizeof header || header.size > head - tail) {
            ++losses.lost;
            return;
        }
        Record record(ring, tail + sizeof header, header.size - sizeof header);
        tail += header.size;
        KernelEvent event;
        Outcome outcome = Outcome::skipped;
        switch (header.type) {
            case PERF_RECORD_SAMPLE:
                outcome = read_sample(record, header.misc, accesses, event);
                break;
            case PERF_RECORD_LOST: {
                std::uint64_t id_and_lost[2];
                if (!record.read(id_and_lost, sizeof id_and_lost)) outcome = Outcome::malformed;
                else losses.lost += id_and_lost[1];
                break;
            }
            case PERF_RECORD_THROTTLE: ++losses.throttled; break;
            default: outcome = read_other(record, header, event); break;
        }
        if (outcome == Outcome::malformed) ++losses.lost;
        if (outcome == Outcome::complete) handle(std::move(event));
    }
}

}  // namespace assay::numa
