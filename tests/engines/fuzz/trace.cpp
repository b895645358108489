// Fuzz target: heap traces, which are analysed, packed, and analysed again. Their checksums are
// valid, so that the decoders see the damage. An input is a sequence of chunks: a header, and its
// payload of raw_bytes bytes.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "../profile/analyse/planted_trace.hpp"
#include "core/error.hpp"
#include "fuzz.hpp"
#include "profile/analyse/analyse.hpp"
#include "profile/pack/pack.hpp"
#include "profile/trace/file.hpp"

using namespace assay;
using namespace assay::heap;

namespace {

void write_chunks(const std::string& path, const std::uint8_t* data, std::size_t size) {
    TraceWriter writer(path);
    while (size >= sizeof(ChunkHeader)) {
        ChunkHeader header;
        std::memcpy(&header, data, sizeof header);
        data += sizeof header;
        size -= sizeof header;
        const std::size_t bytes = std::min<std::size_t>(header.raw_bytes, size);
        header.magic = ChunkHeader::expected_magic;
        writer.write(header, {data, bytes});
        data += bytes;
        size -= bytes;
    }
}

std::vector<Input> seed_inputs() {
    std::vector<Input> inputs;
    for (const auto& chunks : {planted_chunks(), planted_python_chunks()}) {
        Input& input = inputs.emplace_back();
        for (PlantedChunk chunk : chunks) {
            chunk.header.raw_bytes = static_cast<std::uint32_t>(chunk.payload.size());
            const auto* header = reinterpret_cast<const std::uint8_t*>(&chunk.header);
            input.insert(input.end(), header, header + sizeof chunk.header);
            input.insert(input.end(), chunk.payload.begin(), chunk.payload.end());
        }
    }
    return inputs;
}

void read(const std::uint8_t* data, std::size_t size) {
    static std::FILE* null_output = std::fopen("/dev/null", "w");
    const std::string path = fuzz::unused_path();
    write_chunks(path, data, size);
    for (int pass = 0; pass < 2; ++pass) {
        try {
            analyse(path, ~std::uint64_t{0}, null_output);
            if (pass == 0) pack(path);
        } catch (const Error&) {
            break;
        }
    }
}

}  // namespace

std::vector<Reader> readers() { return {{"trace", seed_inputs, read}}; }
