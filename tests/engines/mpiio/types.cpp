// Test cases on datatypes (types.hpp). MPI_Pack, which the accelerator does not replace, gives the
// data that a type has.
#include "mpiio/types.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>

namespace {

// Frees the type at the end of its scope.
struct Type {
    MPI_Datatype handle = MPI_DATATYPE_NULL;
    ~Type() { MPI_Type_free(&handle); }
    Type() = default;
    Type(const Type&) = delete;
    Type& operator=(const Type&) = delete;
};

int size_of(MPI_Datatype type) {
    int bytes = 0;
    MPI_Type_size(type, &bytes);
    return bytes;
}

// Types of memory whose pieces are long, long and in reverse, short, tiny, or first long and then
// short: more bytes than one call writes, to one place of the file. `most`: bytes of a buffer.
void pieces_of_memory() {
    constexpr int rows = 1200, row = 5001, pitch = 5003, most = 20 << 20;
    std::array<Type, 5> types;
    MPI_Type_vector(rows, row, pitch, MPI_BYTE, &types[0].handle);
    Type reverse;
    MPI_Type_create_hvector(rows, row, -pitch, MPI_BYTE, &reverse.handle);
    const MPI_Aint last = MPI_Aint{rows - 1} * pitch;
    const int one = 1;
    MPI_Type_create_hindexed(1, &one, &last, reverse.handle, &types[1].handle);
    MPI_Type_vector(9000, 101, 103, MPI_BYTE, &types[2].handle);
    MPI_Type_vector(most / 16, 1, 2, MPI_DOUBLE, &types[3].handle);
    const std::array<int, 3> counts = {5 << 20, 1, 4097};
    const std::array<MPI_Aint, 3> offsets = {1, 6 << 20, 8 << 20};
    const std::array<MPI_Datatype, 3> parts = {MPI_BYTE, types[2].handle, MPI_BYTE};
    MPI_Type_create_struct(3, counts.data(), offsets.data(), parts.data(), &types[4].handle);
    std::vector<char> from(most), spread(most);
    std::minstd_rand random(static_cast<unsigned>(rank) + 1);
    for (char& byte : from) byte = static_cast<char>(random());
    for (auto& type : types) {
        MPI_Type_commit(&type.handle);
        const int bytes = size_of(type.handle);
        std::vector<char> packed(static_cast<std::size_t>(bytes)), read(packed.size()),
            packed_again(packed.size());
        int position = 0;
        MPI_Pack(from.data(), 1, type.handle, packed.data(), bytes, &position, MPI_COMM_SELF);
        MPI_File file = open_file("pieces", read_write_create | MPI_MODE_DELETE_ON_CLOSE);
        const MPI_Offset offset = MPI_Offset{rank} * bytes;
        MPI_Status status;
        EXPECT(MPI_File_write_at(file, offset, from.data(), 1, type.handle, &status) ==
               MPI_SUCCESS);
        EXPECT(count_of(status, MPI_BYTE) == bytes);
        EXPECT(MPI_File_read_at(file, offset, read.data(), bytes, MPI_BYTE, &status) ==
               MPI_SUCCESS);
        EXPECT(read == packed);
        EXPECT(MPI_File_read_at(file, offset, spread.data(), 1, type.handle, &status) ==
               MPI_SUCCESS);
        position = 0;
        MPI_Pack(spread.data(), 1, type.handle, packed_again.data(), bytes, &position,
                 MPI_COMM_SELF);
        EXPECT(packed_again == packed);
        MPI_File_close(&file);
    }
}

// Buffers with gaps, of more bytes than the accelerator copies at a time, whose rows do not end
// where the copies do. The file's data are one block for each rank, or rows of the ranks in turn.
void strided_buffers() {
    constexpr int rows = 5000, row = 1027, pitch = 1031;  // 20.5 MB
    Type memory, file_row, file_type;
    MPI_Type_vector(rows, row, pitch, MPI_INT, &memory.handle);
    MPI_Type_commit(&memory.handle);
    MPI_Type_contiguous(row, MPI_INT, &file_row.handle);
    MPI_Type_create_resized(file_row.handle, 0, MPI_Aint{4} * row * size, &file_type.handle);
    MPI_Type_commit(&file_type.handle);
    for (const bool in_turn : {false, true}) {
        const auto value = [&](int of_rank, int k, int column) {
            return in_turn ? (k * size + of_rank) * row + column
                           : (of_rank * rows + k) * row + column;
        };
        const auto buffer_of = [&](int of_rank) {
            std::vector<int> buffer(static_cast<std::size_t>(rows) * pitch, -1);
            for (int k = 0; k < rows; ++k)
                for (int column = 0; column < row; ++column)
                    buffer[static_cast<std::size_t>(k) * pitch + static_cast<std::size_t>(column)] =
                        value(of_rank, k, column);
            return buffer;
        };
        const auto view_of = [&](MPI_File file, int of_rank) {
            const MPI_Offset rows_before = in_turn ? of_rank : MPI_Offset{of_rank} * rows;
            MPI_File_set_view(file, rows_before * row * 4, MPI_INT,
                              in_turn ? file_type.handle : MPI_INT, "native", MPI_INFO_NULL);
        };
        MPI_File file = open_file("gaps");
        view_of(file, rank);
        const auto written = buffer_of(rank);
        MPI_Status status;
        EXPECT(MPI_File_write_at_all(file, 0, written.data(), 1, memory.handle, &status) ==
               MPI_SUCCESS);
        EXPECT(count_of(status) == rows * row);
        sync_all(file);
        const int other = (rank + 1) % size;
        view_of(file, other);
        std::vector<int> read(written.size(), -1);
        EXPECT(MPI_File_read_at_all(file, 0, read.data(), 1, memory.handle, &status) ==
               MPI_SUCCESS);
        EXPECT(count_of(status) == rows * row && read == buffer_of(other));
        MPI_File_close(&file);
        MPI_Barrier(MPI_COMM_WORLD);
        EXPECT(read_back("gaps") == consecutive(rows * row * size, 0));
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) unlink(path("gaps").c_str());
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

// The arguments of MPI_Type_create_darray.
struct Distribution {
    int dimensions, processes = 1, order, ints_per_element;
    std::array<int, 3> sizes{}, kinds{}, arguments{}, grid{};

    explicit Distribution(std::mt19937& random) {
        const auto below = [&](int limit) {
            return static_cast<int>(random() % static_cast<unsigned>(limit));
        };
        dimensions = 1 + below(3);
        order = below(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
        ints_per_element = 1 + below(2);
        for (std::size_t k = 0; k < static_cast<std::size_t>(dimensions); ++k) {
            sizes[k] = 1 + below(17);
            grid[k] = 1 + below(3);
            kinds[k] = below(2) ? MPI_DISTRIBUTE_CYCLIC : MPI_DISTRIBUTE_BLOCK;
            arguments[k] = MPI_DISTRIBUTE_DFLT_DARG;
            if (below(2))
                arguments[k] = kinds[k] == MPI_DISTRIBUTE_CYCLIC
                                   ? 1 + below(4)
                                   : (sizes[k] + grid[k] - 1) / grid[k] + below(3);
            if (below(4) == 0) kinds[k] = MPI_DISTRIBUTE_NONE, grid[k] = 1;
            processes *= grid[k];
        }
    }
    int ints() const {
        int product = ints_per_element;
        for (int k = 0; k < dimensions; ++k) product *= sizes[static_cast<std::size_t>(k)];
        return product;
    }
    void create(int process, Type& type) const {
        Type element;
        MPI_Type_contiguous(ints_per_element, MPI_INT, &element.handle);
        MPI_Type_create_darray(processes, process, dimensions, sizes.data(), kinds.data(),
                               arguments.data(), grid.data(), order, element.handle, &type.handle);
        MPI_Type_commit(&type.handle);
    }
};

// Distributed arrays of up to three dimensions and 27 processes, whose parts the ranks write in
// turn: as the file type, and as the memory type.
void distributed_arrays() {
    std::mt19937 random(5);
    for (int round = 0; round < 40 && failure.empty(); ++round) {
        const Distribution array(random);
        const auto content = consecutive(array.ints(), 1 + 10000 * round);
        MPI_File file = open_file("array"), packed_file = open_file("packed");
        for (int first = 0; first < array.processes; first += size) {
            const bool has_part = first + rank < array.processes;
            Type type;
            array.create(has_part ? first + rank : 0, type);
            const int bytes = has_part ? size_of(type.handle) : 0;
            std::vector<int> part(static_cast<std::size_t>(bytes / 4));
            int packed_bytes = 0;
            if (bytes)
                MPI_Pack(content.data(), 1, type.handle, part.data(), bytes, &packed_bytes,
                         MPI_COMM_SELF);
            MPI_File_set_view(file, 0, MPI_INT, type.handle, "native", MPI_INFO_NULL);
            // In two calls, of which the second begins within the type.
            const int begun = bytes / 4 / 3;
            EXPECT(MPI_File_write_all(file, part.data(), begun, MPI_INT, MPI_STATUS_IGNORE) ==
                   MPI_SUCCESS);
            EXPECT(MPI_File_write_all(file, part.data() + begun, bytes / 4 - begun, MPI_INT,
                                      MPI_STATUS_IGNORE) == MPI_SUCCESS);
            std::vector<int> read(part.size());
            EXPECT(MPI_File_read_at(file, 0, read.data(), bytes / 4, MPI_INT, MPI_STATUS_IGNORE) ==
                   MPI_SUCCESS);
            EXPECT(read == part);
            const MPI_Offset offset = rank * 4 * array.ints();
            EXPECT(MPI_File_write_at(packed_file, offset, content.data(), bytes ? 1 : 0,
                                     type.handle, MPI_STATUS_IGNORE) == MPI_SUCCESS);
            EXPECT(MPI_File_read_at(packed_file, offset, read.data(), bytes, MPI_BYTE,
                                    MPI_STATUS_IGNORE) == MPI_SUCCESS);
            EXPECT(read == part);
            if (!failure.empty() && failure.find("array") == std::string::npos)
                failure += ", array " + std::to_string(round);
        }
        MPI_File_close(&packed_file);
        MPI_File_close(&file);
        EXPECT(read_back("array") == content);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) unlink(path("array").c_str()), unlink(path("packed").c_str());
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

// In its scope the process can allocate this many more bytes.
class MemoryLimit {
public:
    explicit MemoryLimit(rlim_t bytes) {
        getrlimit(RLIMIT_DATA, &before_);
        std::ifstream status("/proc/self/status");
        for (std::string word; status >> word;)
            if (word == "VmData:") {
                rlim_t kib = 0;
                status >> kib;
                const rlimit limit{kib * 1024 + bytes, before_.rlim_max};
                EXPECT(setrlimit(RLIMIT_DATA, &limit) == 0);
                return;
            }
        EXPECT(!"VmData");
    }
    ~MemoryLimit() { setrlimit(RLIMIT_DATA, &before_); }
    MemoryLimit(const MemoryLimit&) = delete;
    MemoryLimit& operator=(const MemoryLimit&) = delete;

private:
    rlimit before_{};
};

// Writes one instance of the memory type, reads it again, and compares bytes. Only `allowed` bytes
// of memory may be allocated in these calls.
void transfer_in_little_memory(MPI_Datatype type, std::size_t extent, rlim_t allowed) {
    std::vector<char> written(extent), read(extent), packed;
    for (std::size_t k = 0; k < extent; ++k) written[k] = static_cast<char>(k * 7 + k / 4096);
    const int bytes = size_of(type);
    MPI_File file = open_file("large");
    const MPI_Offset offset = MPI_Offset{bytes} * rank;
    MPI_Status status;
    {
        const MemoryLimit limit(allowed);
        EXPECT(MPI_File_write_at(file, offset, written.data(), 1, type, &status) == MPI_SUCCESS);
        EXPECT(count_of(status, MPI_BYTE) == bytes);
        EXPECT(MPI_File_read_at(file, offset, read.data(), 1, type, &status) == MPI_SUCCESS);
        EXPECT(count_of(status, MPI_BYTE) == bytes);
    }
    std::vector<char> expected(static_cast<std::size_t>(bytes)), in_file(expected.size());
    int position = 0;
    MPI_Pack(written.data(), 1, type, expected.data(), bytes, &position, MPI_COMM_SELF);
    EXPECT(MPI_File_read_at(file, offset, in_file.data(), bytes, MPI_BYTE, &status) == MPI_SUCCESS);
    EXPECT(in_file == expected);
    position = 0;
    MPI_Pack(read.data(), 1, type, in_file.data(), bytes, &position, MPI_COMM_SELF);
    EXPECT(in_file == expected);
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) unlink(path("large").c_str());
    MPI_Barrier(MPI_COMM_WORLD);
}

// Neither a transfer nor a type needs memory in proportion to its bytes.
void run_in_little_memory() {
    constexpr rlim_t allowed = 48 << 20;
    {
        Type rows;
        MPI_Type_vector(24576, 4096, 5000, MPI_BYTE, &rows.handle);  // 96 MiB
        MPI_Type_commit(&rows.handle);
        transfer_in_little_memory(rows.handle, 24576 * 5000, allowed);
    }
    {
        constexpr int elements = 1 << 25, processes = 2;
        const int kind = MPI_DISTRIBUTE_CYCLIC, argument = 1;
        Type array;
        MPI_Type_create_darray(processes, rank % processes, 1, &elements, &kind, &argument,
                               &processes, MPI_ORDER_C, MPI_BYTE, &array.handle);
        MPI_Type_commit(&array.handle);
        transfer_in_little_memory(array.handle, elements, allowed);
    }
    {
        Type pair, line, plane;  // 2^21 lines of two bytes with a gap
        MPI_Type_vector(2, 1, 2, MPI_BYTE, &pair.handle);
        MPI_Type_create_hvector(1 << 10, 1, 5, pair.handle, &line.handle);
        MPI_Type_create_hvector(1 << 11, 1, 5 << 10, line.handle, &plane.handle);
        MPI_Type_commit(&plane.handle);
        transfer_in_little_memory(plane.handle, 5 << 21, allowed);
    }
}

// One call of each rank that moves more bytes than an int can count. Pages of the buffer that are
// not written take no memory.
void transfer_two_gigabytes() {
    constexpr MPI_Count bytes = (MPI_Count{1} << 31) + (1 << 20);
    constexpr int parts = 2049;
    Type mebibyte;
    MPI_Type_contiguous(1 << 20, MPI_BYTE, &mebibyte.handle);
    MPI_Type_commit(&mebibyte.handle);
    const auto allocate = [] {
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        EXPECT(memory != MAP_FAILED);
        return static_cast<char*>(memory);
    };
    const MPI_Count marked[] = {0, INT32_MAX, bytes / 2, bytes - 1};
    const auto check_status = [&mebibyte](const MPI_Status& status) {
        int count = -1;
        MPI_Count moved = -1;
        MPI_Get_count(&status, mebibyte.handle, &count);
        MPI_Get_elements_x(&status, MPI_BYTE, &moved);
        EXPECT(count == parts);
        EXPECT(moved == bytes);
    };
    MPI_File file = open_file("two", read_write_create | MPI_MODE_DELETE_ON_CLOSE);
    char* buffer = allocate();
    for (const MPI_Count offset : marked) buffer[offset] = static_cast<char>(1 + offset % 100);
    MPI_Status status;
    EXPECT(MPI_File_write_at_all(file, rank * bytes, buffer, parts, mebibyte.handle, &status) ==
           MPI_SUCCESS);
    check_status(status);
    munmap(buffer, bytes);
    sync_all(file);
    MPI_Offset end = -1;
    MPI_File_get_size(file, &end);
    EXPECT(end == size * bytes);
    buffer = allocate();
    EXPECT(MPI_File_read_at_all(file, (size - 1 - rank) * bytes, buffer, parts, mebibyte.handle,
                                &status) == MPI_SUCCESS);
    check_status(status);
    for (const MPI_Count offset : marked)
        EXPECT(buffer[offset] == static_cast<char>(1 + offset % 100));
    EXPECT(bytes - std::count(buffer, buffer + bytes, '\0') == 4);
    munmap(buffer, bytes);
    MPI_File_close(&file);
}

}  // namespace

const std::vector<Case> type_cases = {{"pieces-of-memory", pieces_of_memory},
                                      {"strided-buffers", strided_buffers},
                                      {"distributed-arrays", distributed_arrays}};
const Case little_memory = {"little-memory", run_in_little_memory};
const Case two_gigabytes = {"two-gigabytes", transfer_two_gigabytes};
