// A ring of a perf event as the kernel writes it, of records whose content is known.
#pragma once

#include <linux/perf_event.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

struct PlantedRing {
    explicit PlantedRing(std::size_t bytes, std::uint64_t begin = 0)
        : data(bytes), tail(begin), head(begin) {}

    std::vector<char> data;
    std::uint64_t tail, head;

    // Appends a record; its body may run across the ring's end.
    void add(std::uint32_t type, std::uint16_t misc, const std::vector<char>& body) {
        perf_event_header header{};
        header.type = type;
        header.misc = misc;
        header.size = static_cast<std::uint16_t>(sizeof header + body.size());
        const auto* begin = reinterpret_cast<const char*>(&header);
        for (std::size_t k = 0; k < sizeof header; ++k) data[head++ % data.size()] = begin[k];
        for (const char byte : body) data[head++ % data.size()] = byte;
    }
};

// A record's body, value by value.
struct Body {
    std::vector<char> bytes;
    template <class T>
    Body& put(T value) {
        bytes.resize(bytes.size() + sizeof value);
        std::memcpy(&*(bytes.end() - sizeof value), &value, sizeof value);
        return *this;
    }
    Body& text(const std::string& name) {  // padded with zeros to a multiple of 8 bytes
        for (const char letter : name) bytes.push_back(letter);
        do bytes.push_back(0);
        while (bytes.size() % 8 != 0);
        return *this;
    }
    Body& ids(std::uint32_t pid, std::uint32_t tid, std::uint64_t time) {
        return put(pid)
            .put(tid)
            .put(time)
            .put(std::uint32_t{1})
            .put(std::uint32_t{0})
            .put(std::uint64_t{7});
    }
};

inline constexpr std::uint64_t fault_event_id = 7, load_event_id = 8, ibs_event_id = 9;

// A sample of process 100, thread 101 on processor 3 with `words` words of its stack: 1, 2, ...
inline Body planted_sample(std::uint64_t id, std::uint64_t time, std::uint64_t address,
                           std::uint64_t words = 2) {
    Body body;
    body.put(id).put(std::uint64_t{0x4000}).put(std::uint32_t{100}).put(std::uint32_t{101});
    body.put(time).put(address).put(std::uint32_t{3}).put(std::uint32_t{0});
    body.put(std::uint64_t{PERF_SAMPLE_REGS_ABI_64});
    body.put(std::uint64_t{0xb0}).put(std::uint64_t{0x50}).put(std::uint64_t{0x4004});
    body.put(words * 8);
    for (std::uint64_t k = 1; k <= words; ++k) body.put(k);
    if (words > 0) body.put(words * 8);
    return body;
}

inline std::uint64_t planted_source(std::uint64_t operation, std::uint64_t bits,
                                    std::uint64_t level = PERF_MEM_LVLNUM_NA,
                                    std::uint64_t remote = 0, std::uint64_t hops = 0) {
    perf_mem_data_src source{};
    source.mem_op = operation;
    source.mem_lvl = bits;
    source.mem_lvl_num = level;
    source.mem_remote = remote;
    source.mem_hops = hops;
    return source.val;
}

// One of each record, in a small ring so that some run across its end.
inline PlantedRing planted_ring() {
    PlantedRing ring(2048, 1900);
    Body mapped;
    mapped.put(std::uint32_t{100}).put(std::uint32_t{101}).put(std::uint64_t{0x4000});
    mapped.put(std::uint64_t{0x1000}).put(std::uint64_t{0x2000});
    mapped.put(std::uint32_t{8}).put(std::uint32_t{1}).put(std::uint64_t{5}).put(std::uint64_t{0});
    mapped.put(std::uint32_t{4}).put(std::uint32_t{0});  // PROT_EXEC
    ring.add(PERF_RECORD_MMAP2, 0, mapped.text("/bin/a").ids(100, 101, 10).bytes);
    Body forked;
    for (const std::uint32_t number : {200u, 100u, 200u, 101u}) forked.put(number);
    forked.put(std::uint64_t{20});
    ring.add(PERF_RECORD_FORK, 0, Body(forked).ids(100, 101, 20).bytes);
    ring.add(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER,
             planted_sample(fault_event_id, 30, 0x10000).bytes);
    ring.add(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER,
             planted_sample(load_event_id, 40, 0x20000, 0)
                 .put(planted_source(PERF_MEM_OP_LOAD, PERF_MEM_LVL_REM_RAM1 | PERF_MEM_LVL_HIT))
                 .bytes);
    ring.add(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER,
             planted_sample(ibs_event_id, 50, 0x30000)
                 .put(planted_source(PERF_MEM_OP_STORE, PERF_MEM_LVL_L1 | PERF_MEM_LVL_HIT))
                 .bytes);
    ring.add(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER,  // an instruction without an access
             planted_sample(ibs_event_id, 55, 0).put(planted_source(PERF_MEM_OP_NA, 0)).bytes);
    ring.add(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_KERNEL,
             planted_sample(ibs_event_id, 56, 0x30000)
                 .put(planted_source(PERF_MEM_OP_STORE, PERF_MEM_LVL_L1 | PERF_MEM_LVL_HIT))
                 .bytes);
    Body lost;
    lost.put(fault_event_id).put(std::uint64_t{12});
    ring.add(PERF_RECORD_LOST, 0, Body(lost).ids(100, 101, 60).bytes);
    Body throttled;
    throttled.put(std::uint64_t{60}).put(load_event_id).put(load_event_id);
    ring.add(PERF_RECORD_THROTTLE, 0, throttled.ids(100, 101, 60).bytes);
    Body name;
    name.put(std::uint32_t{100}).put(std::uint32_t{101});
    ring.add(PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC, name.text("a").ids(100, 101, 70).bytes);
    ring.add(PERF_RECORD_EXIT, 0, forked.ids(200, 200, 80).bytes);
    return ring;
}
