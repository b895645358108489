// Helpers of the durability cases. Each rank writes blocks of 1 MiB. The contents of a block depend
// on its rank and version, so that lost, old and misplaced data can be distinguished.
#pragma once

#include <vector>

#include "mpiio/check.hpp"

constexpr int block = 1 << 18;  // ints: 1 MiB

// The cases of each file.
extern const std::vector<Case> name_cases, many_file_cases, outside_cases, alone_cases, fault_cases,
    healed_cases, later_job_cases, handle_cases;

// The content of a rank's block.
std::vector<int> block_of(int version, int of_rank);

// Writes this rank's block of a version. A row consists of one block of each rank; `row` is the
// number of rows before the block in the file.
void write_block(MPI_File file, int version, int row = 0);

// Whether the row of the file, as another program reads it, has this version of all ranks' blocks.
bool file_holds(const char* name, int version, int row = 0);

// Whether this rank, through MPI, reads this version of its own block.
bool rank_reads(MPI_File file, int version, int row = 0);

void close_file(MPI_File& file);

void barrier();

// Runs on rank 0 while the others wait.
template <class Action>
void on_first_rank(Action action) {
    barrier();
    if (rank == 0) action();
    barrier();
}

// Replaces the bytes of an existing file, without MPI.
void overwrite(const char* name, const std::vector<int>& values);

// Prints the error class of an MPI call on this rank, for the test that starts this program.
void print_code(const char* step, int code);

// Switches the fault on or off: it occurs while the file $FAULTY_FS_WHILE exists. Collective.
void set_fault(bool active);

// Writes a line into the log of faulty_fs.
void log_mark(const char* text);
