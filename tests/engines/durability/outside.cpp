// Files that are changed from outside, that are no regular files, or that ranks open by themselves.
#include <string>

#include "durability/durability.hpp"

namespace {

constexpr int words = 64;

std::vector<int> version(int number) { return std::vector<int>(words, number); }

std::vector<int> read_words(MPI_File file) {
    std::vector<int> read(words, -1);
    MPI_Status status;
    EXPECT(MPI_File_read_at(file, 0, read.data(), words, MPI_INT, &status) == MPI_SUCCESS);
    EXPECT(count_of(status) == words);
    return read;
}

void write_words(MPI_File file, int number) {
    const auto values = version(number);
    EXPECT(MPI_File_write_at(file, 0, values.data(), words, MPI_INT, MPI_STATUS_IGNORE) ==
           MPI_SUCCESS);
}

// All ranks write through MPI and close; the first changes the file by POSIX; all open it at once
// and read. Every rank sees the change, however the ranks meet in opening.
void change_often(const char* name, int rounds) {
    int stale = 0, first_stale = -1;
    for (int round = 0; round < rounds && failure.empty(); ++round) {
        MPI_File file = open_file(name);
        if (round > 0 && read_words(file) != version(2 * round - 1)) {
            ++stale;
            if (first_stale < 0) first_stale = round;
        }
        barrier();
        write_words(file, 2 * round);
        close_file(file);
        on_first_rank([&] { overwrite(name, version(2 * round + 1)); });
    }
    if (stale)
        failure = std::to_string(stale) + " of " + std::to_string(rounds) +
                  " reads had old bytes, the first in round " + std::to_string(first_stale);
}

// The table of known files is long, so that one rank looks a file up for as long as the other
// needs to come.
void changed_often() {
    for (int k = 0; k < 200 && rank == 0; ++k) {
        const std::string name = "known" + std::to_string(k);
        MPI_File file = open_file(name.c_str(), rdwr, MPI_COMM_SELF);
        close_file(file);
    }
    barrier();
    change_often("changed", 300);
}

void changed_a_few_times() { change_often("changed", 30); }

// What cannot be read is an error, not zeros: a folder.
void read_folder() {
    MPI_File file = MPI_FILE_NULL;
    if (MPI_File_open(MPI_COMM_WORLD, folder.c_str(), MPI_MODE_RDONLY, MPI_INFO_NULL, &file))
        return;
    std::vector<int> read(words, -1);
    EXPECT(MPI_File_read_at(file, 0, read.data(), words, MPI_INT, MPI_STATUS_IGNORE) !=
           MPI_SUCCESS);
    MPI_File_close(&file);
}

// A process's memory: it has no size. Nothing is mapped at address 0, so that reading there fails.
void read_memory() {
    static const std::vector<int> known = filled(words, 77);
    MPI_File file = MPI_FILE_NULL;
    if (MPI_File_open(MPI_COMM_SELF, "/proc/self/mem", MPI_MODE_RDONLY, MPI_INFO_NULL, &file))
        return;
    std::vector<int> read(words, -1);
    EXPECT(MPI_File_read_at(file, 0, read.data(), words, MPI_INT, MPI_STATUS_IGNORE) !=
           MPI_SUCCESS);
    const auto address = reinterpret_cast<MPI_Offset>(known.data());
    const int code =
        MPI_File_read_at(file, address, read.data(), words, MPI_INT, MPI_STATUS_IGNORE);
    EXPECT(code != MPI_SUCCESS || read == known);
    MPI_File_close(&file);
}

// The kernel says that this file has no bytes, but it has.
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

// Two ranks open one file, each by itself, and write in turn; between the turns they synchronise as
// MPI asks for. Each sees the other's data, and the file has the last.
void two_communicators() {
    if (size < 2) return;
    constexpr int turns = 6;
    MPI_File file = open_file("alone", rdwr, MPI_COMM_SELF);
    for (int turn = 0; turn < turns; ++turn) {
        const bool mine = turn % 2 == rank;
        if (mine && turn > 0) EXPECT(read_words(file) == version(turn));
        if (mine) write_words(file, turn + 1);
        sync_all(file);
        EXPECT(read_words(file) == version(turn + 1));
        barrier();
    }
    on_first_rank([&] { close_file(file); });
    if (file != MPI_FILE_NULL) close_file(file);
    barrier();
    auto content = read_back("alone");
    EXPECT(content == version(turns));
}

// The same, with the turns as opening and closing.
void two_communicators_reopened() {
    for (int turn = 0; turn < 6; ++turn) {
        if (turn % 2 == rank) {
            MPI_File file = open_file("reopened", rdwr, MPI_COMM_SELF);
            if (turn > 0) EXPECT(read_words(file) == version(turn));
            write_words(file, turn + 1);
            close_file(file);
        }
        barrier();
        EXPECT(read_back("reopened") == version(turn + 1));
        barrier();
    }
}

// One rank writes through its own handle; another's handle goes over to the MPI's own I/O before
// those data are in the file.
void bypass_beside_a_writer() {
    MPI_File file = open_file("bypassed", rdwr, MPI_COMM_SELF);
    barrier();
    if (rank == size - 1) write_words(file, 1);
    barrier();
    if (rank == 0)
        EXPECT(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL) ==
               MPI_SUCCESS);
    barrier();
    if (rank == size - 1) EXPECT(read_words(file) == version(1));
    close_file(file);
    barrier();
    EXPECT(read_back("bypassed") == version(1));
}

// Each rank gets a code with the class of the fault, whichever rank met it. (The text of a code
// that came from another rank is lost in MPICH, in its own I/O too.)
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

const std::vector<Case> outside = {{"changed-often", changed_often},
                                   {"changed-a-few-times", changed_a_few_times},
                                   {"read-folder", read_folder},
                                   {"read-memory", read_memory},
                                   {"read-proc", read_proc},
                                   {"two-communicators", two_communicators},
                                   {"two-communicators-reopened", two_communicators_reopened},
                                   {"bypass-beside-a-writer", bypass_beside_a_writer},
                                   {"error-codes", error_codes}};
