// Decodes MPI datatypes into lists of blocks, and finds the blocks of a part of a view's data. The
// combiners and the order of their arguments are those of MPI 4.0, 5.1.13.
#include "storage/accelerator/flat.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace assay::storage {
namespace {

// The arguments of a datatype constructor, with large counts if the MPI has them.
struct TypeContents {
    std::vector<MPI_Count> integers;
    std::vector<MPI_Count> addresses;
    std::vector<MPI_Datatype> types;
    int combiner = MPI_COMBINER_NAMED;

    explicit TypeContents(MPI_Datatype type) {
#if MPI_VERSION >= 4
        MPI_Count n_integers, n_addresses, n_counts, n_types;
        PMPI_Type_get_envelope_c(type, &n_integers, &n_addresses, &n_counts, &n_types, &combiner);
        if (combiner == MPI_COMBINER_NAMED) return;
        std::vector<int> ints(n_integers + 1);
        std::vector<MPI_Aint> aints(n_addresses + 1);
        std::vector<MPI_Count> counts(n_counts + 1);
        types.resize(n_types + 1);
        PMPI_Type_get_contents_c(type, n_integers, n_addresses, n_counts, n_types, ints.data(),
                                 aints.data(), counts.data(), types.data());
        types.resize(n_types);
        // With large counts, the ints and addresses are counts, in the same order (MPI 4.0, table
        // 5.1); only orders and distributions stay ints.
        integers.assign(ints.begin(), ints.end());
        addresses.assign(aints.begin(), aints.end());
        if (n_counts) reorder(ints, counts, n_counts);
#else
        int n_integers, n_addresses, n_types;
        PMPI_Type_get_envelope(type, &n_integers, &n_addresses, &n_types, &combiner);
        if (combiner == MPI_COMBINER_NAMED) return;
        std::vector<int> ints(n_integers + 1);
        std::vector<MPI_Aint> aints(n_addresses + 1);
        types.resize(n_types + 1);
        PMPI_Type_get_contents(type, n_integers, n_addresses, n_types, ints.data(), aints.data(),
                               types.data());
        types.resize(n_types);
        integers.assign(ints.begin(), ints.end());
        addresses.assign(aints.begin(), aints.end());
#endif
    }
    ~TypeContents() {
        for (auto& type : types) {
            int a, b, c, inner;
            PMPI_Type_get_envelope(type, &a, &b, &c, &inner);
            if (inner != MPI_COMBINER_NAMED) PMPI_Type_free(&type);
        }
    }
    TypeContents(const TypeContents&) = delete;
    TypeContents& operator=(const TypeContents&) = delete;

private:
#if MPI_VERSION >= 4
    // Distributes the counts over `integers` and `addresses`, in the order of the version without
    // large counts.
    void reorder(const std::vector<int>& ints, const std::vector<MPI_Count>& counts, MPI_Count n) {
        auto slice = [&](MPI_Count from, MPI_Count to) {
            return std::vector<MPI_Count>(counts.begin() + from, counts.begin() + to);
        };
        switch (combiner) {
            case MPI_COMBINER_HVECTOR: integers = slice(0, 2), addresses = slice(2, 3); break;
            case MPI_COMBINER_HINDEXED:
            case MPI_COMBINER_STRUCT:
                integers = slice(0, 1 + (n - 1) / 2), addresses = slice(1 + (n - 1) / 2, n);
                break;
            case MPI_COMBINER_HINDEXED_BLOCK:
                integers = slice(0, 2), addresses = slice(2, n);
                break;
            case MPI_COMBINER_RESIZED: integers.clear(), addresses = slice(0, 2); break;
            case MPI_COMBINER_SUBARRAY: {  // ints: ndims, order; counts: sizes, subsizes, starts
                integers.assign(1, ints[0]);
                integers.insert(integers.end(), counts.begin(), counts.begin() + n);
                integers.push_back(ints[1]);
                break;
            }
            case MPI_COMBINER_DARRAY: {  // ints: size, rank, ndims, distribs, dargs, psizes, order;
                                         // counts: gsizes
                const int dimensions = ints[2];
                integers.assign(ints.begin(), ints.begin() + 3);
                integers.insert(integers.end(), counts.begin(), counts.begin() + dimensions);
                integers.insert(integers.end(), ints.begin() + 3,
                                ints.begin() + 4 + 3 * dimensions);
                break;
            }
            default: integers = slice(0, n);
        }
    }
#endif
};

std::int64_t extent_of(MPI_Datatype type) {
    MPI_Count low, extent;
    PMPI_Type_get_extent_x(type, &low, &extent);
    return extent;
}

std::int64_t size_of(MPI_Datatype type) {
    MPI_Count size;
    PMPI_Type_size_x(type, &size);
    return size;
}

// Merges `next` into `last` if it continues it. `count` 1 has its length as stride.
bool merge(Blocks& last, const Blocks& next) {
    if (last.count == 1 && next.count == 1 && next.begin == last.begin + last.length) {
        last.length += next.length;
        last.stride = last.length;
        return true;
    }
    if (next.length != last.length) return false;
    if (next.count == 1 && last.count == 1 && next.begin > last.begin + last.length) {
        last.stride = next.begin - last.begin;
        last.count = 2;
        return true;
    }
    if (last.count > 1 && next.begin == last.begin + last.count * last.stride &&
        (next.count == 1 || next.stride == last.stride)) {
        last.count += next.count;
        return true;
    }
    return false;
}

// Blocks without gaps are one.
Blocks joined(const Blocks& blocks) {
    if (blocks.count > 1 && blocks.stride != blocks.length) return blocks;
    const std::int64_t length = blocks.length * blocks.count;
    return {blocks.begin, length, length, 1};
}

using Flat = std::shared_ptr<const FlatType>;

// Puts a flattened type together.
class FlatBuilder {
public:
    void add_block(Blocks blocks) {
        if (!blocks.length || !blocks.count) return;
        blocks = joined(blocks);
        auto& parts = flat_.parts;
        if (parts.empty() || parts.back().inner || !merge(parts.back(), blocks))
            parts.push_back({blocks, nullptr});
    }
    // Adds `count` instances of a type, at begin, begin + stride, ...
    void add(const Flat& type, std::int64_t begin, std::int64_t stride, std::int64_t count) {
        flat_.decoded &= type->decoded;
        if (count <= 0 || type->parts.empty()) return;
        const FlatPart& first = type->parts[0];
        const bool single = type->parts.size() == 1 && !first.inner;
        if (single && first.count == 1)
            add_block({begin + first.begin, first.length, stride, count});
        else if (single && count == 1)
            add_block({begin + first.begin, first.length, first.stride, first.count});
        else flat_.parts.push_back({{begin, type->size, stride, count}, type});
    }
    Flat finish(std::int64_t extent = 0) {
        flat_.extent = extent;
        for (const auto& part : flat_.parts) {
            flat_.preceding_bytes.push_back(flat_.size);
            flat_.size += part.length * part.count;
        }
        flat_.contiguous = flat_.parts.size() == 1 && !flat_.parts[0].inner &&
                           flat_.parts[0].count == 1 && flat_.parts[0].begin == 0 &&
                           flat_.parts[0].length == extent;
        return std::make_shared<const FlatType>(std::move(flat_));
    }

    void fail() { flat_.decoded = false; }

private:
    FlatType flat_;
};

Flat repeated(const Flat& type, std::int64_t stride, std::int64_t count) {
    if (count == 1) return type;
    FlatBuilder out;
    out.add(type, 0, stride, count);
    return out.finish();
}

// Predefined types are contiguous, except pairs with padding.
void add_predefined(MPI_Datatype type, FlatBuilder& out) {
    const auto add = [&](std::int64_t begin, std::int64_t length) {
        out.add_block({begin, length, length, 1});
    };
    if (type == MPI_SHORT_INT) add(0, sizeof(short)), add(sizeof(int), sizeof(int));
    else if (type == MPI_LONG_DOUBLE_INT)
        add(0, sizeof(long double)), add(sizeof(long double), sizeof(int));
    else add(0, size_of(type));
}

// Subarrays and distributed arrays are built from the fastest dimension to the slowest.
std::vector<int> dimensions_in_order(int n, bool c_order) {
    std::vector<int> order(static_cast<std::size_t>(n));
    for (int k = 0; k < n; ++k) order[static_cast<std::size_t>(k)] = c_order ? n - 1 - k : k;
    return order;
}

Flat subarray(const TypeContents& contents, Flat inner, std::int64_t pitch) {
    const int n = static_cast<int>(contents.integers[0]);
    const auto* sizes = &contents.integers[1];
    const auto *subsizes = sizes + n, *starts = sizes + 2 * n;
    for (const int k : dimensions_in_order(n, sizes[3 * n] == MPI_ORDER_C)) {
        FlatBuilder line;
        line.add(inner, starts[k] * pitch, pitch, subsizes[k]);
        inner = line.finish();
        pitch *= sizes[k];
    }
    return inner;
}

// The indices along one dimension of a distributed array that a process has (MPI 4.0, 5.1.4):
// block, cyclic(k) or all.
Flat distributed(const Flat& inner, std::int64_t pitch, std::int64_t size,
                 std::int64_t distribution, std::int64_t argument, std::int64_t processes,
                 std::int64_t coordinate) {
    if (distribution == MPI_DISTRIBUTE_NONE) processes = 1, coordinate = 0;
    std::int64_t block = argument;
    if (distribution == MPI_DISTRIBUTE_NONE) block = size;
    else if (argument == MPI_DISTRIBUTE_DFLT_DARG)
        block = distribution == MPI_DISTRIBUTE_BLOCK ? (size + processes - 1) / processes : 1;
    const std::int64_t first = coordinate * block, cycle = processes * block;
    FlatBuilder line;
    if (first >= size) return line.finish();
    const std::int64_t whole = size - first < block ? 0 : (size - first - block) / cycle + 1;
    line.add(repeated(inner, pitch, block), first * pitch, cycle * pitch, whole);
    const std::int64_t last = first + whole * cycle;
    line.add(inner, last * pitch, pitch, size - last);
    return line.finish();
}

Flat darray(const TypeContents& contents, Flat inner, std::int64_t pitch) {
    const int n = static_cast<int>(contents.integers[2]);
    const auto* sizes = &contents.integers[3];
    const auto *distributions = sizes + n, *arguments = sizes + 2 * n, *processes = sizes + 3 * n;
    // Ranks are in C order, whatever the array's order is.
    std::vector<std::int64_t> coordinates(static_cast<std::size_t>(n));
    std::int64_t rank = contents.integers[1];
    for (int k = n - 1; k >= 0; --k) {
        coordinates[static_cast<std::size_t>(k)] = rank % processes[k];
        rank /= processes[k];
    }
    for (const int k : dimensions_in_order(n, sizes[4 * n] == MPI_ORDER_C)) {
        inner = distributed(inner, pitch, sizes[k], distributions[k], arguments[k], processes[k],
                            coordinates[static_cast<std::size_t>(k)]);
        pitch *= sizes[k];
    }
    return inner;
}

Flat decode(MPI_Datatype type) {
    const TypeContents contents(type);
    // The arguments of the constructor.
    const auto& n = contents.integers;
    const auto& a = contents.addresses;
    const auto& t = contents.types;
    FlatBuilder out;
    const std::int64_t extent = extent_of(type);
    if (contents.combiner == MPI_COMBINER_NAMED) {
        add_predefined(type, out);
        return out.finish(extent);
    }
    if (contents.combiner == MPI_COMBINER_STRUCT) {
        for (std::int64_t k = 0; k < n[0]; ++k) {
            const Flat member = decode(t[k]);
            out.add(member, a[k], member->extent, n[1 + k]);
        }
        return out.finish(extent);
    }
    // The others have one inner type, or none.
    const Flat inner = t.empty() ? FlatBuilder().finish() : decode(t[0]);
    const std::int64_t pitch = inner->extent;
    switch (contents.combiner) {
        case MPI_COMBINER_F90_REAL:
        case MPI_COMBINER_F90_COMPLEX:
        case MPI_COMBINER_F90_INTEGER: add_predefined(type, out); break;
        case MPI_COMBINER_DUP:
        case MPI_COMBINER_RESIZED: out.add(inner, 0, 0, 1); break;
        case MPI_COMBINER_CONTIGUOUS: out.add(inner, 0, pitch, n[0]); break;
        case MPI_COMBINER_VECTOR:
            out.add(repeated(inner, pitch, n[1]), 0, n[2] * pitch, n[0]);
            break;
        case MPI_COMBINER_HVECTOR: out.add(repeated(inner, pitch, n[1]), 0, a[0], n[0]); break;
        case MPI_COMBINER_INDEXED:
            for (std::int64_t k = 0; k < n[0]; ++k)
                out.add(inner, n[1 + n[0] + k] * pitch, pitch, n[1 + k]);
            break;
        case MPI_COMBINER_HINDEXED:
            for (std::int64_t k = 0; k < n[0]; ++k) out.add(inner, a[k], pitch, n[1 + k]);
            break;
        case MPI_COMBINER_INDEXED_BLOCK:
            for (std::int64_t k = 0; k < n[0]; ++k) out.add(inner, n[2 + k] * pitch, pitch, n[1]);
            break;
        case MPI_COMBINER_HINDEXED_BLOCK:
            for (std::int64_t k = 0; k < n[0]; ++k) out.add(inner, a[k], pitch, n[1]);
            break;
        case MPI_COMBINER_SUBARRAY: out.add(subarray(contents, inner, pitch), 0, 0, 1); break;
        case MPI_COMBINER_DARRAY: out.add(darray(contents, inner, pitch), 0, 0, 1); break;
        default: out.fail();
    }
    return out.finish(extent);
}

// Appends blocks whose order and distances may be any, overlaps included.
void append_part(const Blocks& blocks, BlockList& output) {
    if (blocks.stride >= blocks.length) {
        output.add(blocks);
        return;
    }
    for (std::int64_t k = 0; k < blocks.count; ++k)
        output.add(blocks.begin + k * blocks.stride, blocks.length);
}

// The offset of an instance's first byte.
std::int64_t first_byte(const FlatType& flat) {
    const auto& part = flat.parts[0];
    return part.begin + (part.inner ? first_byte(*part.inner) : 0);
}

// The bytes of one instance that lie before offset `end`. File types have increasing offsets.
std::int64_t bytes_of_instance_before(const FlatType& flat, std::int64_t end) {
    std::int64_t bytes = 0;
    for (const auto& part : flat.parts) {
        const std::int64_t first = part.begin + (part.inner ? first_byte(*part.inner) : 0);
        if (first >= end) continue;
        std::int64_t whole = part.count - 1;
        if (whole && part.stride > 0) whole = std::min(whole, (end - first - 1) / part.stride);
        const std::int64_t rest = end - part.begin - whole * part.stride;
        bytes += whole * part.length + (part.inner ? bytes_of_instance_before(*part.inner, rest)
                                                   : std::min(part.length, rest));
    }
    return bytes;
}

// Calls `copy` with the offset and the length of each piece of memory. Their list is made for a
// part of the bytes at a time, because pieces may be single bytes.
template <class Copy>
void for_each_piece(const FlatType& flat, std::int64_t from, std::int64_t bytes, Copy copy) {
    constexpr std::int64_t max_listed = 1 << 20;
    BlockList pieces;
    for (const std::int64_t end = from + bytes; from < end;) {
        const std::int64_t listed = std::min(end - from, max_listed);
        pieces.blocks.clear();
        append_blocks(flat, 0, from, listed, pieces);
        for (const auto& piece : pieces.blocks)
            for (std::int64_t k = 0; k < piece.count; ++k)
                copy(piece.begin + k * piece.stride, static_cast<std::size_t>(piece.length));
        from += listed;
    }
}

int delete_attribute(MPI_Datatype, int, void* value, void*) {
    delete static_cast<std::shared_ptr<const FlatType>*>(value);
    return MPI_SUCCESS;
}

// The key of the datatype attribute that holds the decoded type.
int flat_type_keyval() {
    static int key = MPI_KEYVAL_INVALID;
    if (key == MPI_KEYVAL_INVALID)
        PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, delete_attribute, &key, nullptr);
    return key;
}

}  // namespace

void BlockList::add(Blocks next) {
    if (!next.length || !next.count) return;
    next = joined(next);
    if (blocks.empty() || !merge(blocks.back(), next)) blocks.push_back(next);
}

std::shared_ptr<const FlatType> flatten(MPI_Datatype type) {
    void* value = nullptr;
    int is_set = 0;
    PMPI_Type_get_attr(type, flat_type_keyval(), &value, &is_set);
    if (is_set) return *static_cast<std::shared_ptr<const FlatType>*>(value);
    auto flat = decode(type);
    if (!flat->decoded) {  // the MPI library transfers it
        FlatType unknown;
        unknown.size = size_of(type), unknown.extent = flat->extent, unknown.decoded = false;
        flat = std::make_shared<const FlatType>(std::move(unknown));
    }
    PMPI_Type_set_attr(type, flat_type_keyval(), new std::shared_ptr<const FlatType>(flat));
    return flat;
}

void append_blocks(const FlatType& flat, std::int64_t origin, std::int64_t from, std::int64_t bytes,
                   BlockList& output) {
    if (bytes <= 0 || flat.parts.empty()) return;
    if (flat.contiguous) {
        output.add(origin + from, bytes);
        return;
    }
    std::int64_t tile = from / flat.size, skip = from % flat.size;
    // One block per instance: whole instances are blocks with the extent as stride.
    const auto& first = flat.parts[0];
    if (flat.parts.size() == 1 && first.count == 1 && !first.inner && flat.extent >= first.length) {
        if (skip) {
            const std::int64_t part = std::min(bytes, first.length - skip);
            output.add(origin + tile * flat.extent + first.begin + skip, part);
            bytes -= part;
            ++tile;
        }
        if (const std::int64_t whole = bytes / first.length) {
            output.add(Blocks{origin + tile * flat.extent + first.begin, first.length, flat.extent,
                              whole});
            tile += whole;
            bytes -= whole * first.length;
        }
        if (bytes) output.add(origin + tile * flat.extent + first.begin, bytes);
        return;
    }
    auto entry = static_cast<std::size_t>(
        std::upper_bound(flat.preceding_bytes.begin(), flat.preceding_bytes.end(), skip) -
        flat.preceding_bytes.begin() - 1);
    skip -= flat.preceding_bytes[entry];
    while (bytes > 0) {
        const auto& part = flat.parts[entry];
        const std::int64_t base = origin + tile * flat.extent + part.begin;
        std::int64_t k = skip / part.length, inside = skip % part.length;
        while (bytes > 0 && k < part.count) {
            const std::int64_t whole = std::min(part.count - k, bytes / part.length);
            if (!part.inner && !inside && whole) {
                append_part({base + k * part.stride, part.length, part.stride, whole}, output);
                bytes -= whole * part.length;
                k += whole;
                continue;
            }
            const std::int64_t taken = std::min(bytes, part.length - inside);
            if (part.inner)
                append_blocks(*part.inner, base + k * part.stride, inside, taken, output);
            else output.add(base + k * part.stride + inside, taken);
            bytes -= taken;
            inside = 0;
            ++k;
        }
        skip = 0;
        if (++entry == flat.parts.size()) entry = 0, ++tile;
    }
}

std::int64_t offset_of(const FlatType& flat, std::int64_t origin, std::int64_t from) {
    BlockList instance;
    append_blocks(flat, origin, from, 1, instance);
    return instance.blocks.empty() ? origin + from : instance.blocks[0].begin;
}

bool find_offset(const FlatType& flat, std::int64_t origin, std::int64_t from,
                 std::int64_t& offset) {
    if (from < 0) return false;
    std::int64_t tile = 0, inside = from;
    if (!flat.contiguous && flat.size > 0) {
        if (__builtin_mul_overflow(from / flat.size, flat.extent, &tile)) return false;
        inside = offset_of(flat, 0, from % flat.size);
    }
    return !__builtin_add_overflow(origin, tile, &tile) &&
           !__builtin_add_overflow(tile, inside, &offset) && offset >= 0;
}

bool fits_in_file(const FlatType& flat, std::int64_t origin, std::int64_t from,
                  std::int64_t bytes) {
    std::int64_t end = 0, offset = 0;
    if (__builtin_add_overflow(from, bytes, &end)) return false;
    if (!bytes) return true;
    return find_offset(flat, origin, from, offset) && find_offset(flat, origin, end - 1, offset) &&
           offset < INT64_MAX;
}

std::int64_t bytes_before(const FlatType& flat, std::int64_t origin, std::int64_t end) {
    if (end <= origin || flat.size <= 0 || flat.extent <= 0) return 0;
    const std::int64_t tiles = (end - origin) / flat.extent, rest = (end - origin) % flat.extent;
    return tiles * flat.size + bytes_of_instance_before(flat, rest);
}

void pack(const FlatType& flat, const char* buffer, std::int64_t from, std::int64_t bytes,
          char* packed) {
    for_each_piece(flat, from, bytes, [&](std::int64_t offset, std::size_t length) {
        std::memcpy(packed, buffer + offset, length);
        packed += length;
    });
}

void unpack(const FlatType& flat, char* buffer, std::int64_t from, std::int64_t bytes,
            const char* packed) {
    for_each_piece(flat, from, bytes, [&](std::int64_t offset, std::size_t length) {
        std::memcpy(buffer + offset, packed, length);
        packed += length;
    });
}

}  // namespace assay::storage
