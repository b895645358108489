#include "profile/numa/record/kernel_records.hpp"

#include <linux/perf_event.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace assay::numa {
namespace {

// The kernel's layouts.
struct Sample {
    std::uint64_t id, ip;
    std::uint32_t pid, tid;
    std::uint64_t time, address;
    std::uint32_t processor, unused;
};
struct Ids {  // the end of all other records
    std::uint32_t pid, tid;
    std::uint64_t time;
    std::uint32_t processor, unused;
    std::uint64_t id;
};
struct Mapped {
    std::uint32_t pid, tid;
    std::uint64_t address, bytes, offset;
    std::uint32_t major, minor;
    std::uint64_t inode, generation;
    std::uint32_t protection, flags;
};
struct Forked {
    std::uint32_t pid, parent, tid, parent_tid;
    std::uint64_t time;
};

// The bytes of one record, which may run across the ring's end.
class Record {
public:
    Record(RingBytes ring, std::uint64_t begin, std::size_t size)
        : ring_(ring), next_(begin), left_(size) {}
    std::size_t left() const { return left_; }
    // False, and nothing is read, where the record is shorter.
    bool read(void* into, std::size_t size) {
        if (size > left_) return false;
        const std::size_t begin = next_ % ring_.bytes, first = std::min(size, ring_.bytes - begin);
        std::memcpy(into, ring_.data + begin, first);
        std::memcpy(static_cast<char*>(into) + first, ring_.data, size - first);
        next_ += size;
        left_ -= size;
        return true;
    }
    bool skip(std::uint64_t size) {
        if (size > left_) return false;
        next_ += size;
        left_ -= size;
        return true;
    }

private:
    RingBytes ring_;
    std::uint64_t next_;
    std::size_t left_;
};

// The registers, and the copy of the stack.
bool read_registers(Record& record, KernelEvent& event) {
    std::uint64_t has_registers = 0, copied = 0, used = 0;
    if (!record.read(&has_registers, sizeof has_registers)) return false;
    if (has_registers != PERF_SAMPLE_REGS_ABI_NONE) {
        std::uint64_t registers[3];  // in the order of their numbers: BP, SP, IP
        if (!record.read(registers, sizeof registers)) return false;
        event.bp = registers[0];
        event.sp = registers[1];
        event.ip = registers[2];
    }
    if (!record.read(&copied, sizeof copied)) return false;
    if (copied == 0) return true;
    const std::uint64_t kept = std::min<std::uint64_t>(copied, sizeof event.stack);
    if (!record.read(event.stack.data(), kept) || !record.skip(copied - kept) ||
        !record.read(&used, sizeof used))
        return false;
    event.used = static_cast<std::uint32_t>(std::min(used, kept) / 8);
    return true;
}

enum class Outcome : std::uint8_t { taken, left_out, damaged };

Outcome read_sample(Record& record, std::uint16_t misc, const AccessEvents& accesses,
                    KernelEvent& event) {
    Sample sample{};
    if (!record.read(&sample, sizeof sample)) return Outcome::damaged;
    event.ns = sample.time;
    event.pid = sample.pid;
    event.tid = sample.tid;
    event.processor = static_cast<int>(sample.processor);
    event.address = sample.address;
    event.ip = sample.ip;
    if (!read_registers(record, event)) return Outcome::damaged;
    const auto access = accesses.find(sample.id);
    if (access == accesses.end()) return Outcome::taken;
    event.kind = KernelEvent::Kind::access;
    event.ip = sample.ip;  // the accessing instruction; the registers may be of a later one
    std::uint64_t source = 0;
    if (!record.read(&source, sizeof source)) return Outcome::damaged;
    event.source = read_data_source(source);
    if (access->second != Operation::none) event.source.operation = access->second;
    const bool by_program = (misc & PERF_RECORD_MISC_CPUMODE_MASK) == PERF_RECORD_MISC_USER;
    return by_program && event.source.operation != Operation::none ? Outcome::taken
                                                                   : Outcome::left_out;
}

Outcome read_mapping(Record& record, KernelEvent& event) {
    Mapped mapped{};
    if (!record.read(&mapped, sizeof mapped) || record.left() < sizeof(Ids))
        return Outcome::damaged;
    event.kind = KernelEvent::Kind::map;
    event.pid = mapped.pid;
    event.tid = mapped.tid;
    event.address = mapped.address;
    event.bytes = mapped.bytes;
    event.offset = mapped.offset;
    event.executable = (mapped.protection & PROT_EXEC) != 0;
    event.name.resize(record.left() - sizeof(Ids));
    record.read(event.name.data(), event.name.size());
    event.name.resize(std::strlen(event.name.c_str()));
    return Outcome::taken;
}

Outcome read_process(Record& record, std::uint32_t type, KernelEvent& event) {
    Forked forked{};
    if (!record.read(&forked, sizeof forked)) return Outcome::damaged;
    event.kind = type == PERF_RECORD_FORK ? KernelEvent::Kind::start : KernelEvent::Kind::exit;
    event.pid = forked.pid;
    event.tid = forked.tid;
    event.parent = forked.parent;
    return Outcome::taken;
}

// A record that is neither a sample nor a count.
Outcome read_other(Record record, const perf_event_header& header, KernelEvent& event) {
    Record end = record;
    Ids ids{};
    if (record.left() < sizeof ids || !end.skip(record.left() - sizeof ids) ||
        !end.read(&ids, sizeof ids))
        return Outcome::damaged;
    Outcome outcome = Outcome::left_out;
    if (header.type == PERF_RECORD_MMAP2) {
        outcome = read_mapping(record, event);
    } else if (header.type == PERF_RECORD_FORK || header.type == PERF_RECORD_EXIT) {
        outcome = read_process(record, header.type, event);
    } else if (header.type == PERF_RECORD_COMM && (header.misc & PERF_RECORD_MISC_COMM_EXEC) != 0) {
        event.kind = KernelEvent::Kind::exec;
        event.pid = ids.pid;
        event.tid = ids.tid;
        outcome = Outcome::taken;
    }
    event.ns = ids.time;
    return outcome;
}

}  // namespace

void read_records(RingBytes ring, std::uint64_t tail, std::uint64_t head,
                  const AccessEvents& accesses, const std::function<void(KernelEvent&&)>& take,
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
        Outcome outcome = Outcome::left_out;
        switch (header.type) {
            case PERF_RECORD_SAMPLE:
                outcome = read_sample(record, header.misc, accesses, event);
                break;
            case PERF_RECORD_LOST: {
                std::uint64_t id_and_lost[2];
                if (!record.read(id_and_lost, sizeof id_and_lost)) outcome = Outcome::damaged;
                else losses.lost += id_and_lost[1];
                break;
            }
            case PERF_RECORD_THROTTLE: ++losses.throttled; break;
            default: outcome = read_other(record, header, event); break;
        }
        if (outcome == Outcome::damaged) ++losses.lost;
        if (outcome == Outcome::taken) take(std::move(event));
    }
}

}  // namespace assay::numa
