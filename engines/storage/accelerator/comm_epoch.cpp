#include "storage/accelerator/comm_epoch.hpp"

#include <atomic>

#include "storage/accelerator/mpi.hpp"

namespace {

std::atomic<std::uint64_t> epoch{1};
std::atomic<bool> always{false};

}  // namespace

namespace assay::storage {

std::uint64_t comm_epoch() {
    return always.load(std::memory_order_relaxed) ? epoch.fetch_add(1) + 1
                                                  : epoch.load(std::memory_order_relaxed);
}
void advance_comm_epoch() { epoch.fetch_add(1); }
void assume_communication() { always = true; }

}  // namespace assay::storage

// Calls the MPI's function, then counts: it may have received something.
#define RECEIVES(name, parameters, arguments)          \
    ASSAY_EXPORT int MPI_##name parameters {           \
        const int code = PMPI_##name arguments;        \
        epoch.fetch_add(1, std::memory_order_relaxed); \
        return code;                                   \
    }
#define RECEIVES_C(name, parameters, arguments) RECEIVES(name##_c, parameters, arguments)
#define S MPI_Status*
#define R MPI_Request*
#define T MPI_Datatype
#define C MPI_Comm

// Functions that also exist with large counts. H: the macro for each; N: the type of a count; D: of
// a displacement.
#define WITH_BUFFERS(H, N, D)                                                                      \
    H(Recv, (void* b, N n, T t, int from, int tag, C c, S s), (b, n, t, from, tag, c, s))          \
    H(Mrecv, (void* b, N n, T t, MPI_Message* m, S s), (b, n, t, m, s))                            \
    H(Ssend, (const void* b, N n, T t, int to, int tag, C c), (b, n, t, to, tag, c))               \
    H(Sendrecv,                                                                                    \
      (const void* b, N n, T t, int to, int tag, void* d, N m, T u, int from, int tog, C c, S s),  \
      (b, n, t, to, tag, d, m, u, from, tog, c, s))                                                \
    H(Sendrecv_replace, (void* b, N n, T t, int to, int tag, int from, int tog, C c, S s),         \
      (b, n, t, to, tag, from, tog, c, s))                                                         \
    H(Bcast, (void* b, N n, T t, int root, C c), (b, n, t, root, c))                               \
    H(Reduce, (const void* b, void* d, N n, T t, MPI_Op o, int root, C c),                         \
      (b, d, n, t, o, root, c))                                                                    \
    H(Allreduce, (const void* b, void* d, N n, T t, MPI_Op o, C c), (b, d, n, t, o, c))            \
    H(Reduce_scatter, (const void* b, void* d, const N n[], T t, MPI_Op o, C c),                   \
      (b, d, n, t, o, c))                                                                          \
    H(Reduce_scatter_block, (const void* b, void* d, N n, T t, MPI_Op o, C c), (b, d, n, t, o, c)) \
    H(Scan, (const void* b, void* d, N n, T t, MPI_Op o, C c), (b, d, n, t, o, c))                 \
    H(Exscan, (const void* b, void* d, N n, T t, MPI_Op o, C c), (b, d, n, t, o, c))               \
    H(Gather, (const void* b, N n, T t, void* d, N m, T u, int root, C c),                         \
      (b, n, t, d, m, u, root, c))                                                                 \
    H(Gatherv, (const void* b, N n, T t, void* d, const N m[], const D at[], T u, int root, C c),  \
      (b, n, t, d, m, at, u, root, c))                                                             \
    H(Scatter, (const void* b, N n, T t, void* d, N m, T u, int root, C c),                        \
      (b, n, t, d, m, u, root, c))                                                                 \
    H(Scatterv, (const void* b, const N n[], const D at[], T t, void* d, N m, T u, int root, C c), \
      (b, n, at, t, d, m, u, root, c))                                                             \
    H(Allgather, (const void* b, N n, T t, void* d, N m, T u, C c), (b, n, t, d, m, u, c))         \
    H(Allgatherv, (const void* b, N n, T t, void* d, const N m[], const D at[], T u, C c),         \
      (b, n, t, d, m, at, u, c))                                                                   \
    H(Alltoall, (const void* b, N n, T t, void* d, N m, T u, C c), (b, n, t, d, m, u, c))          \
    H(Alltoallv,                                                                                   \
      (const void* b, const N n[], const D at[], T t, void* d, const N m[], const D to[], T u,     \
       C c),                                                                                       \
      (b, n, at, t, d, m, to, u, c))                                                               \
    H(Alltoallw,                                                                                   \
      (const void* b, const N n[], const D at[], const T t[], void* d, const N m[], const D to[],  \
       const T u[], C c),                                                                          \
      (b, n, at, t, d, m, to, u, c))

WITH_BUFFERS(RECEIVES, int, int)
#if MPI_VERSION >= 4
WITH_BUFFERS(RECEIVES_C, MPI_Count, MPI_Aint)
#endif

RECEIVES(Probe, (int from, int tag, C c, S s), (from, tag, c, s))
RECEIVES(Iprobe, (int from, int tag, C c, int* f, S s), (from, tag, c, f, s))
RECEIVES(Mprobe, (int from, int tag, C c, MPI_Message* m, S s), (from, tag, c, m, s))
RECEIVES(Wait, (R r, S s), (r, s))
RECEIVES(Waitall, (int n, MPI_Request r[], MPI_Status s[]), (n, r, s))
RECEIVES(Waitany, (int n, MPI_Request r[], int* k, S s), (n, r, k, s))
RECEIVES(Waitsome, (int n, MPI_Request r[], int* m, int k[], MPI_Status s[]), (n, r, m, k, s))
RECEIVES(Test, (R r, int* f, S s), (r, f, s))
RECEIVES(Testall, (int n, MPI_Request r[], int* f, MPI_Status s[]), (n, r, f, s))
RECEIVES(Testany, (int n, MPI_Request r[], int* k, int* f, S s), (n, r, k, f, s))
RECEIVES(Testsome, (int n, MPI_Request r[], int* m, int k[], MPI_Status s[]), (n, r, m, k, s))
RECEIVES(Barrier, (C c), (c))
RECEIVES(Comm_dup, (C c, C* d), (c, d))
RECEIVES(Comm_split, (C c, int color, int key, C* d), (c, color, key, d))
RECEIVES(Win_fence, (int a, MPI_Win w), (a, w))
RECEIVES(Win_wait, (MPI_Win w), (w))
RECEIVES(Win_start, (MPI_Group g, int a, MPI_Win w), (g, a, w))
RECEIVES(Win_complete, (MPI_Win w), (w))
RECEIVES(Win_lock, (int k, int r, int a, MPI_Win w), (k, r, a, w))
RECEIVES(Win_unlock, (int r, MPI_Win w), (r, w))
RECEIVES(Win_flush, (int r, MPI_Win w), (r, w))
RECEIVES(Win_flush_all, (MPI_Win w), (w))
RECEIVES(Win_sync, (MPI_Win w), (w))
