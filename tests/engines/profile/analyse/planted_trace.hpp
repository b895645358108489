// Traces with planted chunks, and one with chunks of all kinds for tests that damage them.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "profile/heap/python_nodes.hpp"
#include "profile/trace/file.hpp"
#include "profile/trace/format.hpp"

namespace assay::heap {

inline std::span<const std::uint8_t> bytes_of(const std::string& text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

struct PlantedChunk {
    ChunkHeader header;
    Bytes payload;
};

// Chunks of all kinds: a process, two stacks, recorded (raw) events and packed events.
inline std::vector<PlantedChunk> planted_chunks() {
    std::vector<PlantedChunk> chunks;
    const auto add = [&](const ChunkHeader& header, std::span<const std::uint8_t> payload) {
        chunks.push_back({header, Bytes(payload.begin(), payload.end())});
    };
    ProcessInfo process{.pid = 7,
                        .parent = 1,
                        .start_ticks = 1000,
                        .start_ns = 5,
                        .end_ticks = 9000,
                        .end_ns = 5000,
                        .end_state = 1};
    Bytes payload(sizeof process);
    std::memcpy(payload.data(), &process, sizeof process);
    add({.kind = ChunkKind::process, .count = 1}, payload);
    payload.clear();
    for (const std::uint64_t parent : {1, 3}) {
        put_varint(payload, parent);
        put_varint(payload, zigzag(0x1234));
    }
    add({.kind = ChunkKind::nodes, .count = 2, .first = 3, .last = 5}, payload);
    add({.kind = ChunkKind::modules, .count = 1}, bytes_of("0 1000 9000 - /nowhere/object.so\n"));
    add({.kind = ChunkKind::thread, .count = 1}, bytes_of("worker"));
    add({.kind = ChunkKind::mappings, .count = 1, .first = 2000},
        bytes_of("1000 5000 3f /nowhere/object.so\n"));
    std::vector<std::uint64_t> raw = {8 | code_of(4) << 4 | 4 << 13,
                                      9 | 0x7f0000000000ull << 4};  // define_stack, set_base
    for (std::uint64_t k = 0; k < 20; ++k) {
        raw.push_back(1 | code_of(4) << 4 | 3 << 13 | 100ull << 25 |
                      7ull << 44);    // malloc, at the last address + 112
        raw.push_back(10 | 55 << 4);  // call_ticks
        if (k % 3 != 0) raw.push_back(6 | code_of(4) << 4 | 2 << 13);  // free
    }
    for (const std::uint64_t word : std::initializer_list<std::uint64_t>{
             50'000 << 4, 11 | 1 << 4 | 4 << 8, 0x7fff12345670, 1ull << 33})
        raw.push_back(word);  // advance_time, full_event
    add({.kind = ChunkKind::raw, .count = static_cast<std::uint32_t>(raw.size()), .first = 70},
        {reinterpret_cast<const std::uint8_t*>(raw.data()), raw.size() * sizeof raw[0]});
    std::vector<Event> events;
    for (std::uint64_t k = 0; k < 20; ++k)
        events.push_back(
            {4000 + 16 * k, block_id(1, k) | std::uint64_t{1} << kind_shift, 50, 4, 0});
    payload.clear();
    encode_columns(events, 1, events.front().time, payload);
    add({.kind = ChunkKind::events,
         .thread = 1,
         .count = 20,
         .first = events.front().time,
         .last = events.back().time},
        payload);
    payload.clear();
    for (const std::uint64_t value : {0, 200, 100}) put_varint(payload, value);
    add({.kind = ChunkKind::samples, .count = 1, .first = 3000, .last = 3000}, payload);
    return chunks;
}

// A process with Python frames, page faults, and functions of a just-in-time compiler.
inline std::vector<PlantedChunk> planted_python_chunks() {
    std::vector<PlantedChunk> chunks = {planted_chunks().front()};
    const auto add = [&](const ChunkHeader& header, std::span<const std::uint8_t> payload) {
        chunks.push_back({header, Bytes(payload.begin(), payload.end())});
    };
    // 3, 4: C; 5: a place; 6: a frame; 7: C and Python joined.
    const std::pair<std::uint64_t, std::uint64_t> nodes[] = {
        {1, 0x4010},
        {3, 0x5000},
        {0, with_tag(line_tag, 99)},
        {0, with_tag(frame_tag, 5 | entry_bit)},
        {4, with_tag(joined_tag, 6)}};
    Bytes payload;
    std::uint64_t before = 0;
    for (const auto& [parent, address] : nodes) {
        put_varint(payload, parent);
        put_varint(payload, zigzag(static_cast<std::int64_t>(address - before)));
        before = address;
    }
    add({.kind = ChunkKind::nodes, .count = 5, .first = 3, .last = 8}, payload);
    add({.kind = ChunkKind::python, .count = 1},
        bytes_of("place 5 12 /planted.py\tfunction\neval 4010\nunread 3.99\n"));
    add({.kind = ChunkKind::code, .count = 1}, bytes_of("5000 20 JS:*name file:///a.js:12:3\n"));
    std::vector<Event> events;
    for (std::uint64_t k = 0; k < 10; ++k)
        events.push_back({4000 + 160 * k, (0x10000 + 0x10000 * k) | std::uint64_t{1} << kind_shift,
                          70'000, 7, 9});
    payload.clear();
    encode_columns(events, 1, events.front().time, payload);
    add({.kind = ChunkKind::events,
         .thread = 1,
         .count = 10,
         .first = events.front().time,
         .last = events.back().time},
        payload);
    payload.clear();
    for (const std::uint64_t time : {100, 400, 400}) {
        put_varint(payload, zigzag(static_cast<std::int64_t>(time)));
        put_varint(payload, 1);
        put_varint(payload, zigzag(0x100));
        put_varint(payload, zigzag(0x11000));
        for (std::size_t k = 0; k < fault_stack_words; ++k) put_varint(payload, zigzag(0x10));
    }
    add({.kind = ChunkKind::faults, .count = 3, .first = 5}, payload);
    add({.kind = ChunkKind::thread, .thread = 1, .count = 1}, bytes_of("1 worker"));
    return chunks;
}

// Checksums are valid for damaged chunks, too.
inline void write_trace(const std::string& path, const std::vector<PlantedChunk>& chunks) {
    std::filesystem::remove(path);
    TraceWriter writer(path);
    for (const PlantedChunk& chunk : chunks) writer.write(chunk.header, chunk.payload);
}

// In memory: thousands of traces are written.
inline std::string trace_path() {
    const std::filesystem::path memory = "/dev/shm";
    return (std::filesystem::is_directory(memory) ? memory
                                                  : std::filesystem::temp_directory_path()) /
           ("assay-planted-" + std::to_string(getpid()) + ".heap");
}

}  // namespace assay::heap
