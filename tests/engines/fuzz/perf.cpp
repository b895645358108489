// Fuzz target: the reader of a perf event's ring. The first two bytes of an input are the ring's
// tail; the rest is its content up to the head.
#include <algorithm>
#include <cstring>

#include "../profile/numa/planted_ring.hpp"
#include "fuzz.hpp"
#include "profile/numa/record/kernel_records.hpp"

using namespace assay::numa;

namespace {

constexpr std::size_t ring_bytes = 2048;

std::vector<Input> seed_rings() {
    const PlantedRing ring = planted_ring();
    Input input{static_cast<std::uint8_t>(ring.tail & 0xff),
                static_cast<std::uint8_t>(ring.tail >> 8)};
    for (std::uint64_t k = ring.tail; k < ring.head; ++k)
        input.push_back(static_cast<std::uint8_t>(ring.data[k % ring.data.size()]));
    return {input};
}

void read_ring(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return;
    const std::uint64_t tail = data[0] | data[1] << 8;
    std::vector<char> ring(
        ring_bytes);  // on the heap, so that the sanitizer sees a read beyond its end
    for (std::size_t k = 2; k < size; ++k)
        ring[(tail + k - 2) % ring.size()] = static_cast<char>(data[k]);
    const AccessEvents events = {{load_event_id, Operation::load}, {ibs_event_id, Operation::none}};
    Losses losses;
    std::size_t read = 0;
    read_records(
        {ring.data(), ring.size()}, tail, tail + size - 2, events,
        [&](KernelEvent&& event) {
            read += event.name.size() + 1;
            if (event.used_words > stack_words) __builtin_trap();
        },
        losses);
    if (read > 64 * ring_bytes) __builtin_trap();
}

}  // namespace

std::vector<Reader> readers() { return {{"records", seed_rings, read_ring}}; }
