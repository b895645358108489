// Decodes MPI datatypes into lists of blocks, and finds the blocks of a part of a view's data. The
// combiners and the order of their arguments are those of MPI 4.0, 5.1.13.
#include "storage/accelerator/flat.hpp"

#include <algorithm>

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

// Predefined types are contiguous, except pairs with padding.
void add_predefined(MPI_Datatype type, std::int64_t base, BlockList& out) {
    const std::int64_t size = size_of(type);
    if (type == MPI_SHORT_INT)
        out.add(base, sizeof(short)),
            out.add(base + static_cast<std::int64_t>(sizeof(int)), sizeof(int));
    else if (type == MPI_LONG_DOUBLE_INT)
        out.add(base, sizeof(long double)),
            out.add(base + static_cast<std::int64_t>(sizeof(long double)), sizeof(int));
    else if (size) out.add(base, size);
}

// Adds the blocks of one instance of a type at the offset `base`. Returns false if its combiner is
// unknown.
bool add_type(MPI_Datatype type, std::int64_t base, BlockList& out);

// Adds the blocks of `n` consecutive instances of a type.
bool add_instances(MPI_Datatype type, std::int64_t base, std::int64_t n, BlockList& out) {
    if (n <= 0) return true;
    BlockList instance;
    if (!add_type(type, 0, instance)) return false;
    const std::int64_t extent = extent_of(type);
    if (instance.blocks.size() == 1 && instance.blocks[0].count == 1 &&
        extent >= instance.blocks[0].length) {
        const auto& block = instance.blocks[0];
        if (block.length == extent) out.add(base + block.begin, n * extent);
        else out.add(Blocks{base + block.begin, block.length, extent, n});
        return true;
    }
    for (std::int64_t k = 0; k < n; ++k)
        for (auto block : instance.blocks) {
            block.begin += base + k * extent;
            out.add(block);
        }
    return true;
}

bool add_subarray(const TypeContents& contents, std::int64_t base, BlockList& out) {
    const int n = static_cast<int>(contents.integers[0]);
    const auto* sizes = &contents.integers[1];
    const auto *subsizes = sizes + n, *starts = sizes + 2 * n;
    const bool c_order = contents.integers[1 + 3 * n] == MPI_ORDER_C;
    // Dimensions from the fastest to the slowest.
    std::vector<int> order(n);
    for (int k = 0; k < n; ++k) order[k] = c_order ? n - 1 - k : k;
    std::vector<std::int64_t> pitch(n), line_index(n, 0);
    std::int64_t product = extent_of(contents.types[0]), lines = 1;
    for (int k = 0; k < n; ++k) {
        pitch[order[k]] = product;
        product *= sizes[order[k]];
        if (k) lines *= subsizes[order[k]];
    }
    for (std::int64_t line = 0; line < lines; ++line) {
        std::int64_t offset = base;
        for (int k = 0; k < n; ++k)
            offset += (starts[order[k]] + (k ? line_index[order[k]] : 0)) * pitch[order[k]];
        if (!add_instances(contents.types[0], offset, subsizes[order[0]], out)) return false;
        for (int k = 1; k < n; ++k) {
            if (++line_index[order[k]] < subsizes[order[k]]) break;
            line_index[order[k]] = 0;
        }
    }
    return true;
}

// The indices along one dimension of a distributed array that a process has (MPI 4.0, 5.1.4):
// block, cyclic(k) or all.
std::vector<std::int64_t> darray_indices(std::int64_t size, int distribution, std::int64_t argument,
                                         std::int64_t processes, std::int64_t coordinate) {
    std::vector<std::int64_t> indices;
    if (distribution == MPI_DISTRIBUTE_NONE) processes = 1, coordinate = 0;
    std::int64_t block = argument;
    if (distribution == MPI_DISTRIBUTE_NONE) block = size;
    else if (argument == MPI_DISTRIBUTE_DFLT_DARG)
        block = distribution == MPI_DISTRIBUTE_BLOCK ? (size + processes - 1) / processes : 1;
    for (std::int64_t start = coordinate * block; start < size; start += processes * block)
        for (std::int64_t k = start; k < std::min(size, start + block); ++k) indices.push_back(k);
    return indices;
}

bool add_darray(const TypeContents& contents, std::int64_t base, BlockList& out) {
    const auto& integers = contents.integers;
    const int n = static_cast<int>(integers[2]);
    const bool c_order = integers[3 + 4 * n] == MPI_ORDER_C;
    std::int64_t rank = integers[1];
    std::vector<std::vector<std::int64_t>> indices(n);
    std::vector<std::int64_t> pitch(n);
    // Ranks are in C order, whatever the array's order is.
    for (int k = n - 1; k >= 0; --k) {
        const auto processes = integers[3 + 3 * n + k];
        indices[k] = darray_indices(integers[3 + k], static_cast<int>(integers[3 + n + k]),
                                    integers[3 + 2 * n + k], processes, rank % processes);
        rank /= processes;
        if (indices[k].empty()) return true;
    }
    std::int64_t product = extent_of(contents.types[0]);
    std::vector<int> order(n);
    for (int k = 0; k < n; ++k) order[k] = c_order ? n - 1 - k : k;
    for (int k : order) pitch[k] = product, product *= integers[3 + k];
    std::vector<std::size_t> index(n, 0);
    for (;;) {
        std::int64_t offset = base;
        for (int k = 0; k < n; ++k) offset += indices[k][index[k]] * pitch[k];
        if (!add_instances(contents.types[0], offset, 1, out)) return false;
        int k = 0;
        for (; k < n; ++k) {
            if (++index[order[k]] < indices[order[k]].size()) break;
            index[order[k]] = 0;
        }
        if (k == n) return true;
    }
}

bool add_type(MPI_Datatype type, std::int64_t base, BlockList& out) {
    const TypeContents contents(type);
    // The arguments of the constructor.
    const auto& n = contents.integers;
    const auto& a = contents.addresses;
    const auto& t = contents.types;
    bool decoded = true;
    switch (contents.combiner) {
        case MPI_COMBINER_NAMED: add_predefined(type, base, out); break;
        case MPI_COMBINER_F90_REAL:
        case MPI_COMBINER_F90_COMPLEX:
        case MPI_COMBINER_F90_INTEGER: out.add(base, size_of(type)); break;
        case MPI_COMBINER_DUP:
        case MPI_COMBINER_RESIZED: decoded = add_type(t[0], base, out); break;
        case MPI_COMBINER_CONTIGUOUS: decoded = add_instances(t[0], base, n[0], out); break;
        case MPI_COMBINER_VECTOR:
            for (std::int64_t k = 0; k < n[0] && decoded; ++k)
                decoded = add_instances(t[0], base + k * n[2] * extent_of(t[0]), n[1], out);
            break;
        case MPI_COMBINER_HVECTOR:
            for (std::int64_t k = 0; k < n[0] && decoded; ++k)
                decoded = add_instances(t[0], base + k * a[0], n[1], out);
            break;
        case MPI_COMBINER_INDEXED:
            for (std::int64_t k = 0; k < n[0] && decoded; ++k)
                decoded =
                    add_instances(t[0], base + n[1 + n[0] + k] * extent_of(t[0]), n[1 + k], out);
            break;
        case MPI_COMBINER_HINDEXED:
            for (std::int64_t k = 0; k < n[0] && decoded; ++k)
                decoded = add_instances(t[0], base + a[k], n[1 + k], out);
            break;
        case MPI_COMBINER_INDEXED_BLOCK:
            for (std::int64_t k = 0; k < n[0] && decoded; ++k)
                decoded = add_instances(t[0], base + n[2 + k] * extent_of(t[0]), n[1], out);
            break;
        case MPI_COMBINER_HINDEXED_BLOCK:
            for (std::int64_t k = 0; k < n[0] && decoded; ++k)
                decoded = add_instances(t[0], base + a[k], n[1], out);
            break;
        case MPI_COMBINER_STRUCT:
            for (std::int64_t k = 0; k < n[0] && decoded; ++k)
                decoded = add_instances(t[k], base + a[k], n[1 + k], out);
            break;
        case MPI_COMBINER_SUBARRAY: decoded = add_subarray(contents, base, out); break;
        case MPI_COMBINER_DARRAY: decoded = add_darray(contents, base, out); break;
        default: decoded = false;
    }
    return decoded;
}

FlatType decode_type(MPI_Datatype type) {
    FlatType flat;
    BlockList list;
    flat.decoded = add_type(type, 0, list);
    flat.blocks = std::move(list.blocks);
    flat.size = size_of(type);
    flat.extent = extent_of(type);
    std::int64_t sum = 0;
    for (const auto& block : flat.blocks) {
        flat.preceding_bytes.push_back(sum);
        sum += block.length * block.count;
    }
    flat.contiguous = flat.blocks.size() == 1 && flat.blocks[0].count == 1 &&
                      flat.blocks[0].begin == 0 && flat.blocks[0].length == flat.extent;
    return flat;
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
    if (next.count > 1 && next.stride == next.length)
        next = {next.begin, next.length * next.count, next.length * next.count, 1};
    if (!blocks.empty()) {
        auto& last = blocks.back();
        if (last.count == 1 && next.count == 1 && next.begin == last.begin + last.length) {
            last.length += next.length;
            last.stride = last.length;
            return;
        }
        if (next.length == last.length && next.count == 1 && last.count == 1 &&
            next.begin > last.begin + last.length) {
            last.stride = next.begin - last.begin;
            last.count = 2;
            return;
        }
        if (next.length == last.length && last.count > 1 &&
            next.begin == last.begin + last.count * last.stride &&
            (next.count == 1 || next.stride == last.stride)) {
            last.count += next.count;
            return;
        }
    }
    blocks.push_back(next);
}

std::shared_ptr<const FlatType> flatten(MPI_Datatype type) {
    void* value = nullptr;
    int is_set = 0;
    PMPI_Type_get_attr(type, flat_type_keyval(), &value, &is_set);
    if (is_set) return *static_cast<std::shared_ptr<const FlatType>*>(value);
    auto flat = std::make_shared<const FlatType>(decode_type(type));
    PMPI_Type_set_attr(type, flat_type_keyval(), new std::shared_ptr<const FlatType>(flat));
    return flat;
}

void append_blocks(const FlatType& flat, std::int64_t origin, std::int64_t from, std::int64_t bytes,
                   BlockList& output) {
    if (bytes <= 0 || flat.size <= 0) return;
    if (flat.contiguous) {
        output.add(origin + from, bytes);
        return;
    }
    std::int64_t tile = from / flat.size, skip = from % flat.size;
    // One block per instance: whole instances are blocks with the extent as stride.
    const auto& first = flat.blocks[0];
    if (flat.blocks.size() == 1 && first.count == 1 && flat.extent >= first.length) {
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
        const auto& block = flat.blocks[entry];
        const std::int64_t base = origin + tile * flat.extent + block.begin;
        std::int64_t k = skip / block.length, inside = skip % block.length;
        if (inside) {
            const std::int64_t part = std::min(bytes, block.length - inside);
            output.add(base + k * block.stride + inside, part);
            bytes -= part;
            ++k;
        }
        if (const std::int64_t whole = std::min(block.count - k, bytes / block.length); whole > 0) {
            output.add(Blocks{base + k * block.stride, block.length, block.stride, whole});
            bytes -= whole * block.length;
            k += whole;
        }
        if (bytes > 0 && k < block.count) {
            output.add(base + k * block.stride, bytes);
            return;
        }
        skip = 0;
        if (++entry == flat.blocks.size()) entry = 0, ++tile;
    }
}

std::int64_t offset_of(const FlatType& flat, std::int64_t origin, std::int64_t from) {
    BlockList instance;
    append_blocks(flat, origin, from, 1, instance);
    return instance.blocks.empty() ? origin + from : instance.blocks[0].begin;
}

std::int64_t bytes_before(const FlatType& flat, std::int64_t origin, std::int64_t end) {
    if (end <= origin || flat.size <= 0 || flat.extent <= 0) return 0;
    const std::int64_t tiles = (end - origin) / flat.extent, rest = (end - origin) % flat.extent;
    std::int64_t bytes = tiles * flat.size;
    for (const auto& block : flat.blocks)
        for (std::int64_t k = 0; k < block.count && block.begin + k * block.stride < rest; ++k)
            bytes += std::min(block.length, rest - block.begin - k * block.stride);
    return bytes;
}

}  // namespace assay::storage
