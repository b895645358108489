// The MPI program of the chaos test of the accelerator: runs the operations of a plan on MPI-IO
// files.
//
//     mpirun -n N chaos_io-MPI FOLDER PLAN
//
// A line of the plan is an operation: its kind, its number, then the arguments of the kind, which
// tests/python/accelerator/chaos_plan.py describes. Every rank reads the same plan. The files are
// in FOLDER/files, the logs in FOLDER: log.RANK and read.RANK (record_log.hpp). An operation that
// fails is logged with its error class, and the run goes on.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

#include "chaos_io/record_log.hpp"
#include "chaos_io/tag.hpp"

namespace {

using Arguments = std::istringstream;

int rank, size;
std::string folder;
chaos::RecordLog records;
std::vector<int> pids;  // of all ranks
std::map<int, MPI_File> files;
std::map<int, ino_t> inodes;  // by slot, of the file that was last opened there
MPI_Info hints;

long read_number(Arguments& arguments) {
    long value = 0;
    if (arguments >> value) return value;
    std::fprintf(stderr, "chaos_io: a number is missing in the plan: %s\n",
                 arguments.str().c_str());
    std::exit(2);
}

std::string file_path(Arguments& arguments) {
    std::string name;
    arguments >> name;
    return folder + "/files/" + name;
}

int error_class(int code) {
    int result = MPI_SUCCESS;
    MPI_Error_class(code, &result);
    return result;
}

long transferred_bytes(MPI_Status& status) {
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    return count;
}

// Runs `action` on the file of an operation, and logs its start and end. `action` returns an MPI
// error code and sets the number of bytes that it has read or written.
template <class Action>
void on_file(int operation, int slot, Action action) {
    const auto file = files.find(slot);
    if (file == files.end()) return records.skip(operation);
    long bytes = 0;
    records.start(operation);
    const int code = action(file->second, bytes);
    records.end(operation, error_class(code), bytes);
}

void open_file(int operation, Arguments& arguments) {
    const auto slot = static_cast<int>(read_number(arguments));
    const std::string path = file_path(arguments);
    MPI_File file = MPI_FILE_NULL;
    records.start(operation);
    const int code =
        MPI_File_open(MPI_COMM_WORLD, path.c_str(), MPI_MODE_CREATE | MPI_MODE_RDWR, hints, &file);
    records.end(operation, error_class(code));
    int opened = code == MPI_SUCCESS, ranks_opened = 0;
    MPI_Allreduce(&opened, &ranks_opened, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    struct stat info{};
    if (ranks_opened) inodes[slot] = stat(path.c_str(), &info) ? 0 : info.st_ino;
    if (ranks_opened == size) files[slot] = file;
    else if (ranks_opened) {
        records.note("opened-on-some-ranks");
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

int write_at(int operation, int slot, MPI_File file, long offset, long bytes, bool collective,
             long& bytes_done) {
    std::vector<char> data(static_cast<std::size_t>(bytes));
    chaos::Tag{slot, rank, operation}.fill(static_cast<std::uint64_t>(offset),
                                           static_cast<std::uint64_t>(bytes), data.data());
    MPI_Status status;
    const auto write = collective ? MPI_File_write_at_all : MPI_File_write_at;
    const int code = write(file, offset, data.data(), static_cast<int>(bytes), MPI_BYTE, &status);
    if (!code) bytes_done = transferred_bytes(status);
    return code;
}

void write(int operation, Arguments& arguments) {
    if (read_number(arguments) != rank) return;
    const auto slot = static_cast<int>(read_number(arguments));
    const long offset = read_number(arguments), bytes = read_number(arguments);
    on_file(operation, slot, [&](MPI_File file, long& bytes_done) {
        return write_at(operation, slot, file, offset, bytes, false, bytes_done);
    });
}

void write_all(int operation, Arguments& arguments) {
    const auto slot = static_cast<int>(read_number(arguments));
    long offset = 0, bytes = 0;
    for (int k = 0; k <= rank; ++k) offset = read_number(arguments), bytes = read_number(arguments);
    on_file(operation, slot, [&](MPI_File file, long& bytes_done) {
        return write_at(operation, slot, file, offset, bytes, true, bytes_done);
    });
}

// Each rank writes `count` blocks through a view: the blocks of the ranks follow each other.
int write_strided(int operation, int slot, MPI_File file, bool collective, Arguments& arguments,
                  long& bytes_done) {
    const long begin = read_number(arguments), block = read_number(arguments),
               count = read_number(arguments);
    const long stride = size * block + read_number(arguments), first_byte = begin + rank * block;
    std::vector<char> data(static_cast<std::size_t>(block * count));
    for (long k = 0; k < count; ++k)
        chaos::Tag{slot, rank, operation}.fill(static_cast<std::uint64_t>(first_byte + k * stride),
                                               static_cast<std::uint64_t>(block),
                                               data.data() + k * block);
    MPI_Datatype type;
    MPI_Type_create_hvector(static_cast<int>(count), static_cast<int>(block), stride, MPI_BYTE,
                            &type);
    MPI_Type_commit(&type);
    MPI_Status status;
    int code = MPI_File_set_view(file, first_byte, MPI_BYTE, type, "native", MPI_INFO_NULL);
    const auto write = collective ? MPI_File_write_at_all : MPI_File_write_at;
    if (!code) code = write(file, 0, data.data(), static_cast<int>(data.size()), MPI_BYTE, &status);
    if (!code) bytes_done = transferred_bytes(status);
    const int reset = MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    if (reset) {
        records.note("view-not-reset");
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Type_free(&type);
    return code;
}

void write_strided_view(int operation, Arguments& arguments) {
    const auto slot = static_cast<int>(read_number(arguments));
    const bool collective = read_number(arguments);
    on_file(operation, slot, [&](MPI_File file, long& bytes_done) {
        return write_strided(operation, slot, file, collective, arguments, bytes_done);
    });
}

void read(int operation, Arguments& arguments) {
    if (read_number(arguments) != rank) return;
    const auto slot = static_cast<int>(read_number(arguments));
    const long offset = read_number(arguments), bytes = read_number(arguments);
    on_file(operation, slot, [&](MPI_File file, long& bytes_done) {
        std::vector<char> data(static_cast<std::size_t>(bytes));
        MPI_Status status;
        const int code =
            MPI_File_read_at(file, offset, data.data(), static_cast<int>(bytes), MPI_BYTE, &status);
        if (!code) records.data(data.data(), bytes_done = transferred_bytes(status));
        return code;
    });
}

// Adds a line to the log of the file system (faulty_fs.cpp). `inode`: of the file that it concerns.
void mark_in_log(const char* event, int value, int process = 0, ino_t inode = 0) {
    const char* path = std::getenv("FAULTY_FS_LOG");
    if (!path) return;
    const int log = chaos::open_log(path);
    const std::string line = std::to_string(process) + " " + event + " " + std::to_string(value) +
                             " -1 " + std::to_string(inode) + " -\n";
    chaos::append(log, line.data(), line.size());
    close(log);
}

// Marks in the log that an operation has returned on all ranks: all earlier writes must be synced
// by now. No rank runs another operation meanwhile.
void mark_return(int operation, int slot) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) mark_in_log("returned", operation, 0, inodes[slot]);
    MPI_Barrier(MPI_COMM_WORLD);
}

void sync(int operation, Arguments& arguments) {
    const auto slot = static_cast<int>(read_number(arguments));
    on_file(operation, slot, [](MPI_File file, long&) { return MPI_File_sync(file); });
    mark_return(operation, slot);
}

void close_file(int operation, Arguments& arguments) {
    const auto slot = static_cast<int>(read_number(arguments));
    on_file(operation, slot, [](MPI_File& file, long&) { return MPI_File_close(&file); });
    files.erase(slot);
    mark_return(operation, slot);
}

void set_size(int operation, Arguments& arguments) {
    const auto slot = static_cast<int>(read_number(arguments));
    const long bytes = read_number(arguments);
    MPI_Barrier(MPI_COMM_WORLD);
    int code = MPI_ERR_FILE;
    on_file(operation, slot,
            [&](MPI_File file, long&) { return code = MPI_File_set_size(file, bytes); });
    if (rank == 0 && !code) mark_in_log("resized", operation, 0, inodes[slot]);
    MPI_Barrier(MPI_COMM_WORLD);
}

// Runs an operation on rank 0 while the others wait.
template <class Action>
void on_rank_0(int operation, Action action) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        records.start(operation);
        const int code = action();
        records.end(operation, code);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

void rename_file(int operation, Arguments& arguments) {
    const std::string from = file_path(arguments), to = file_path(arguments);
    on_rank_0(operation,
              [&] { return std::rename(from.c_str(), to.c_str()) ? MPI_ERR_OTHER : MPI_SUCCESS; });
}

void delete_file(int operation, Arguments& arguments) {
    const std::string path = file_path(arguments);
    on_rank_0(operation, [&] { return error_class(MPI_File_delete(path.c_str(), MPI_INFO_NULL)); });
}

void barrier(int, Arguments&) { MPI_Barrier(MPI_COMM_WORLD); }

// ---- faults

// The file system fails while this file exists (FAULTY_FS_WHILE).
void begin_fault(int, Arguments& arguments) {
    if (read_number(arguments) != rank) return;
    records.note("fault-begins");
    close(chaos::open_log(folder + "/fault"));
}

void end_fault(int, Arguments& arguments) {
    if (read_number(arguments) != rank) return;
    unlink((folder + "/fault").c_str());
    records.note("fault-ended");
}

// Runs `action` after a delay in a thread, so that a signal comes in the middle of a later
// operation.
template <class Action>
void run_after(long microseconds, Action action) {
    std::thread([=] {
        usleep(static_cast<useconds_t>(microseconds));
        action();
    }).detach();
}

void kill_rank(int, Arguments& arguments) {
    if (read_number(arguments) == rank)
        run_after(read_number(arguments), [] { ::kill(getpid(), SIGKILL); });
}

void kill_all_ranks(int, Arguments& arguments) {
    if (read_number(arguments) != rank) return;
    run_after(read_number(arguments), [] {
        for (const int pid : pids)
            if (pid != getpid()) ::kill(pid, SIGKILL);
        ::kill(getpid(), SIGKILL);
    });
}

// The next rank stops the process of a rank and continues it after a time.
void stop_and_continue(int, Arguments& arguments) {
    const auto victim = static_cast<std::size_t>(read_number(arguments));
    const long microseconds = read_number(arguments);
    if ((victim + 1) % pids.size() != static_cast<std::size_t>(rank)) return;
    run_after(0, [=] {
        ::kill(pids[victim], SIGSTOP);
        usleep(static_cast<useconds_t>(microseconds));
        ::kill(pids[victim], SIGCONT);
    });
}

void pause_rank(int, Arguments& arguments) {
    usleep(static_cast<useconds_t>(read_number(arguments)));
}

// Ends a run in which a rank is killed, without MPI_Finalize, which would wait for that rank. The
// rank itself polls MPI until it is killed, so that its pending messages are sent.
void exit_without_finalize(int, Arguments& arguments) {
    const bool dying = read_number(arguments) == rank;
    for (int has_message = 0; dying; usleep(100))
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &has_message, MPI_STATUS_IGNORE);
    records.note("left");
    _exit(7);
}

using Action = void (*)(int, Arguments&);
const std::map<std::string, Action> actions = {{"open", open_file},
                                               {"write", write},
                                               {"write_all", write_all},
                                               {"strided", write_strided_view},
                                               {"read", read},
                                               {"sync", sync},
                                               {"close", close_file},
                                               {"size", set_size},
                                               {"rename", rename_file},
                                               {"delete", delete_file},
                                               {"barrier", barrier},
                                               {"fault", begin_fault},
                                               {"mend", end_fault},
                                               {"kill", kill_rank},
                                               {"kill_all", kill_all_ranks},
                                               {"stop", stop_and_continue},
                                               {"pause", pause_rank},
                                               {"leave", exit_without_finalize}};

void run_plan(std::istream& plan) {
    for (std::string line; std::getline(plan, line);) {
        Arguments arguments(line);
        std::string kind;
        arguments >> kind;
        const auto action = actions.find(kind);
        if (action == actions.end()) {
            std::fprintf(stderr, "chaos_io: the plan has an unknown operation: %s\n", line.c_str());
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        const auto operation = static_cast<int>(read_number(arguments));
        action->second(operation, arguments);
    }
}

}  // namespace

int main(int argc, char** argv) {
    std::ifstream plan(argc == 3 ? argv[2] : "");
    if (!plan) {
        std::fprintf(stderr, "usage: chaos_io FOLDER PLAN\n");
        return 2;
    }
    folder = argv[1];
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    records.open(folder, rank);
    const int pid = getpid();
    pids.resize(static_cast<std::size_t>(size));
    MPI_Allgather(&pid, 1, MPI_INT, pids.data(), 1, MPI_INT, MPI_COMM_WORLD);
    mark_in_log("rank", rank, pid);
    // Without these hints ROMIO also writes the gaps of strided transfers, with garbage beyond the
    // end of the file.
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "romio_ds_write", "disable");
    MPI_Info_set(hints, "romio_cb_write", "disable");
    records.note("started");
    run_plan(plan);
    records.note("finalize");
    MPI_Info_free(&hints);
    MPI_Finalize();
    records.note("ended");
    return 0;
}
