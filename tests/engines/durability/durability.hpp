// What the cases share. Each rank writes blocks of 1 MiB; a block's content tells its rank and its
// version, so that lost, old and misplaced data are told apart.
#pragma once

#include <vector>

#include "mpiio/check.hpp"

constexpr int block = 1 << 18;  // ints: 1 MiB

extern const std::vector<Case> names, many, outside, faults, later;

// The content of a rank's block.
std::vector<int> block_of(int version, int of_rank);

// Writes this rank's block of a version. The blocks of all ranks follow each other; `row` is the
// number of such rows before it.
void write_block(MPI_File file, int version, int row = 0);

// Whether the file, as another program reads it, has the blocks of all ranks in this version.
bool holds(const char* name, int version, int row = 0);

// Whether this rank reads its own block of that version through MPI.
bool reads(MPI_File file, int version, int row = 0);

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

// Prints the error class of an MPI call on this rank, for the test that reads the output.
void say(const char* step, int code);

// Writes a line into the log of faulty_fs.
void mark(const char* text);
