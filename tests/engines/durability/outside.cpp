// Durability cases with files that other programs change, that are not regular files, or that
// single ranks open (MPI_COMM_SELF).
#include <string>

#include "durability/durability.hpp"

namespace {

constexpr int ints_per_file = 64;

std::vector<int> ints_of_version(int number) { return std::vector<int>(ints_per_file, number); }

std::vector<int> read_ints(MPI_File file) {
    std::vector<int> read(ints_per_file, -1);
    MPI_Status status;
    EXPECT(MPI_File_read_at(file, 0, read.data(), ints_per_file, MPI_INT, &status) == MPI_SUCCESS);
    EXPECT(count_of(status) == ints_per_file);
    return read;
}

void write_ints(MPI_File file, int number) {
    const auto values = ints_of_version(number);
    EXPECT(MPI_File_write_at(file, 0, values.data(), ints_per_file, MPI_INT, MPI_STATUS_IGNORE) ==
           MPI_SUCCESS);
}

// All ranks write through MPI and close; rank 0 changes the file by POSIX; all ranks open it at the
// same time and read. Every rank must see the change.
void change_and_reread(const char* name, int rounds) {
    int stale = 0, first_stale = -1;
    for (int round = 0; round < rounds && failure.empty(); ++round) {
        MPI_File file = open_file(name);
        if (round > 0 && read_ints(file) != ints_of_version(2 * round - 1)) {
            ++stale;
            if (first_stale < 0) first_stale = round;
        }
        barrier();
        write_ints(file, 2 * round);
        close_file(file);
        on_first_rank([&] { overwrite(name, ints_of_version(2 * round + 1)); });
    }
    if (stale)
        failure = std::to_string(stale) + " of " + std::to_string(rounds) +
                  " reads had old bytes, the first in round " + std::to_string(first_stale);
}

// The file table has 200 more files, so that finding a file takes long enough for the ranks to do
// it at the same time.
void changed_often() {
    for (int k = 0; k < 200 && rank == 0; ++k) {
        const std::string name = "known" + std::to_string(k);
        MPI_File file = open_file(name.c_str(), read_write_create, MPI_COMM_SELF);
        close_file(file);
    }
    barrier();
    change_and_reread("changed", 300);
}

void changed_a_few_times() { change_and_reread("changed", 30); }

// Reading a folder is an error; it must not return zeros.
void read_folder() {
    MPI_File file = MPI_FILE_NULL;
    if (MPI_File_open(MPI_COMM_WORLD, folder.c_str(), MPI_MODE_RDONLY, MPI_INFO_NULL, &file))
        return;
    std::vector<int> read(ints_per_file, -1);
    EXPECT(MPI_File_read_at(file, 0, read.data(), ints_per_file, MPI_INT, MPI_STATUS_IGNORE) !=
           MPI_SUCCESS);
    MPI_File_close(&file);
}

// /proc/self/mem has size 0 but contents. Reading at address 0, where nothing is mapped, must fail.
void read_memory() {
    static const std::vector<int> memory_contents = consecutive(ints_per_file, 77);
    MPI_File file = MPI_FILE_NULL;
    if (MPI_File_open(MPI_COMM_SELF, "/proc/self/mem", MPI_MODE_RDONLY, MPI_INFO_NULL, &file))
        return;
    std::vector<int> read(ints_per_file, -1);
    EXPECT(MPI_File_read_at(file, 0, read.data(), ints_per_file, MPI_INT, MPI_STATUS_IGNORE) !=
           MPI_SUCCESS);
    const auto address = reinterpret_cast<MPI_Offset>(memory_contents.data());
    const int code =
        MPI_File_read_at(file, address, read.data(), ints_per_file, MPI_INT, MPI_STATUS_IGNORE);
    EXPECT(code != MPI_SUCCESS || read == memory_contents);
    MPI_File_close(&file);
}

// /proc/version has size 0 but contents.
void read_proc() {
    std::ifstream in("/proc/version");
    std::string text, read(64, '\0');
    std::getline(in, text);
    MPI_File file = MPI_FILE_NULL;
    EXPECT(MPI_File_open(MPI_COMM_WORLD, "/proc/version", MPI_MODE_RDONLY, MPI_INFO_NULL, &file) ==
           MPI_SUCCESS);
    if (file == MPI_FILE_NULL) return;
    MPI_Status status;
    EXPECT(MPI_File_read_at(file, 0, read.data(), 32, MPI_BYTE, &status) == MPI_SUCCESS);
    EXPECT(count_of(status, MPI_BYTE) == 32 && read.substr(0, 32) == text.substr(0, 32));
    MPI_File_close(&file);
}

// Two ranks open the same file, each on MPI_COMM_SELF, and write in turn. Between the turns they
// synchronize as MPI requires. Each sees the other's data, and the file ends with the last ones.
void two_communicators() {
    if (size < 2) return;
    constexpr int turns = 6;
    MPI_File file = open_file("alone", read_write_create, MPI_COMM_SELF);
    for (int turn = 0; turn < turns; ++turn) {
        const bool is_own_turn = turn % 2 == rank;
        if (is_own_turn && turn > 0) EXPECT(read_ints(file) == ints_of_version(turn));
        if (is_own_turn) write_ints(file, turn + 1);
        sync_all(file);
        EXPECT(read_ints(file) == ints_of_version(turn + 1));
        barrier();
    }
    on_first_rank([&] { close_file(file); });
    if (file != MPI_FILE_NULL) close_file(file);
    barrier();
    auto content = read_back("alone");
    EXPECT(content == ints_of_version(turns));
}

// The same, but each turn opens and closes the file.
void two_communicators_reopened() {
    for (int turn = 0; turn < 6; ++turn) {
        if (turn % 2 == rank) {
            MPI_File file = open_file("reopened", read_write_create, MPI_COMM_SELF);
            if (turn > 0) EXPECT(read_ints(file) == ints_of_version(turn));
            write_ints(file, turn + 1);
            close_file(file);
        }
        barrier();
        EXPECT(read_back("reopened") == ints_of_version(turn + 1));
        barrier();
    }
}

// One rank writes through its own handle. The handle of another rank switches to the MPI's own I/O
// (external32) before those data are in the file.
void bypass_beside_a_writer() {
    MPI_File file = open_file("bypassed", read_write_create, MPI_COMM_SELF);
    barrier();
    if (rank == size - 1) write_ints(file, 1);
    barrier();
    if (rank == 0)
        EXPECT(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL) ==
               MPI_SUCCESS);
    barrier();
    if (rank == size - 1) EXPECT(read_ints(file) == ints_of_version(1));
    close_file(file);
    barrier();
    EXPECT(read_back("bypassed") == ints_of_version(1));
}

// One rank has written through its own handle. Another rank makes the file empty through its own.
void truncated_by_another_handle() {
    MPI_File file = open_file("truncated", read_write_create, MPI_COMM_SELF);
    barrier();
    if (rank == size - 1) write_ints(file, 1);
    barrier();
    if (rank == 0) EXPECT(MPI_File_set_size(file, 0) == MPI_SUCCESS);
    barrier();
    close_file(file);
    barrier();
    EXPECT(read_back("truncated").empty());
}

// After close and a barrier every open sees what all nodes have written: that of one rank
// (`alone`), which rank after rank makes, or that of all.
void reopened(bool alone) {
    for (int round = 0; round < 10; ++round) {
        on_first_rank([] { MPI_File_delete(path("shared").c_str(), MPI_INFO_NULL); });
        MPI_File file = open_file("shared");
        write_block(file, round);
        close_file(file);
        barrier();
        if (!alone || rank == round % size) {
            file = open_file("shared", MPI_MODE_RDONLY, alone ? MPI_COMM_SELF : MPI_COMM_WORLD);
            MPI_Offset bytes = 0;
            EXPECT(MPI_File_get_size(file, &bytes) == MPI_SUCCESS &&
                   bytes == MPI_Offset{block} * 4 * size);
            std::vector<int> values(block);
            for (int other = 0; other < size; ++other)
                EXPECT(MPI_File_read_at(file, MPI_Offset{other} * block * 4, values.data(), block,
                                        MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
                       values == block_of(round, other));
            close_file(file);
        }
        barrier();
    }
}
void reopened_by_one() { reopened(true); }
void reopened_by_all() { reopened(false); }

// The drain of this rank's node writes everything that is in its store.
void drain_node() {
    MPI_File file =
        open_file(("other" + std::to_string(rank)).c_str(), read_write_create, MPI_COMM_SELF);
    write_ints(file, 1);
    EXPECT(MPI_File_sync(file) == MPI_SUCCESS);
    close_file(file);
}

// Three ranks write the same bytes in turn: the last, the first, then the second one, which is on
// the node of the first. The node of the last one drains last. A sync without the second rank must
// leave its bytes in the file.
void newest_of_a_rank_outside() {
    MPI_Comm some = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 1 ? MPI_UNDEFINED : 0, rank, &some);
    MPI_File file = open_file("contested"), of_some = MPI_FILE_NULL;
    if (rank != 1) of_some = open_file("contested", read_write_create, some);
    for (const int writer : {2, 0, 1}) {
        if (rank == writer) write_ints(file, 1 + writer);
        barrier();
    }
    for (const int drained : {0, 2}) {
        if (rank == drained) drain_node();
        barrier();
    }
    on_first_rank([] { EXPECT(read_back("contested") == ints_of_version(3)); });
    if (rank != 1) EXPECT(MPI_File_sync(of_some) == MPI_SUCCESS);
    on_first_rank([] { EXPECT(read_back("contested") == ints_of_version(2)); });
    if (rank != 1) close_file(of_some);
    if (rank != 1) MPI_Comm_free(&some);
    close_file(file);
}

// Every rank gets an error code with the class of the fault, whichever rank has found it.
void error_codes() {
    MPI_File file = MPI_FILE_NULL;
    const int code = MPI_File_open(MPI_COMM_WORLD, path("no/such/file").c_str(), MPI_MODE_RDONLY,
                                   MPI_INFO_NULL, &file);
    int error_class = 0;
    EXPECT(code != MPI_SUCCESS);
    EXPECT(MPI_Error_class(code, &error_class) == MPI_SUCCESS);
    EXPECT(error_class == MPI_ERR_NO_SUCH_FILE);
}

}  // namespace

const std::vector<Case> outside_cases = {
    {"changed-often", changed_often},
    {"changed-a-few-times", changed_a_few_times},
    {"read-folder", read_folder},
    {"read-memory", read_memory},
    {"read-proc", read_proc},
    {"two-communicators", two_communicators},
    {"two-communicators-reopened", two_communicators_reopened},
    {"bypass-beside-a-writer", bypass_beside_a_writer},
    {"truncated-by-another-handle", truncated_by_another_handle},
    {"reopened-by-one", reopened_by_one},
    {"reopened-by-all", reopened_by_all},
    {"newest-of-a-rank-outside", newest_of_a_rank_outside},
    {"error-codes", error_codes}};
