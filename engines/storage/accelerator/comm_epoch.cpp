// Intercepts the MPI calls that advance the communication epoch: those by which a process may learn
// that another process has written. These are receives, probes, collectives, completions of
// requests and the synchronization of windows. Calls that only start an operation do not count; the
// completion does. A synchronous send counts because it returns only after the receiver has begun
// to receive.
#include "storage/accelerator/comm_epoch.hpp"

#include <atomic>

#include "storage/accelerator/mpi.hpp"

namespace {

std::atomic<std::uint64_t> epoch{1};
std::atomic<bool> assumed{false};

}  // namespace

namespace assay::storage {

std::uint64_t comm_epoch() {
    return assumed.load(std::memory_order_relaxed) ? epoch.fetch_add(1) + 1
                                                   : epoch.load(std::memory_order_relaxed);
}
void advance_comm_epoch() { epoch.fetch_add(1); }
void assume_communication() { assumed = true; }

}  // namespace assay::storage

// Defines MPI_`name`, which calls PMPI_`name` and then advances the epoch. ADVANCES_C does so for
// the function with large counts, whose name ends in _c.
#define ADVANCES(name, parameters, arguments)          \
    ASSAY_EXPORT int MPI_##name parameters {           \
        const int code = PMPI_##name arguments;        \
        epoch.fetch_add(1, std::memory_order_relaxed); \
        return code;                                   \
    }
#define ADVANCES_C(name, parameters, arguments) ADVANCES(name##_c, parameters, arguments)
// Short names for the types in the lists below.
#define S MPI_Status*
#define R MPI_Request*
#define T MPI_Datatype
#define C MPI_Comm

// Functions that also exist with large counts. H: the macro that is applied to each; N: the type of
// a count; D: the type of a displacement. b, d: buffers; n, m: counts; p, q: displacements; t, u:
// datatypes; c: communicator.
#define WITH_BUFFERS(H, N, D)                                                                      \
    H(Recv, (void* b, N n, T t, int from, int tag, C c, S s), (b, n, t, from, tag, c, s))          \
    H(Mrecv, (void* b, N n, T t, MPI_Message* m, S s), (b, n, t, m, s))                            \
    H(Ssend, (const void* b, N n, T t, int to, int tag, C c), (b, n, t, to, tag, c))               \
    H(Sendrecv,                                                                                    \
      (const void* b, N n, T t, int to, int tag, void* d, N m, T u, int from, int tag2, C c, S s), \
      (b, n, t, to, tag, d, m, u, from, tag2, c, s))                                               \
    H(Sendrecv_replace, (void* b, N n, T t, int to, int tag, int from, int tag2, C c, S s),        \
      (b, n, t, to, tag, from, tag2, c, s))                                                        \
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
    H(Gatherv, (const void* b, N n, T t, void* d, const N m[], const D p[], T u, int root, C c),   \
      (b, n, t, d, m, p, u, root, c))                                                              \
    H(Scatter, (const void* b, N n, T t, void* d, N m, T u, int root, C c),                        \
      (b, n, t, d, m, u, root, c))                                                                 \
    H(Scatterv, (const void* b, const N n[], const D p[], T t, void* d, N m, T u, int root, C c),  \
      (b, n, p, t, d, m, u, root, c))                                                              \
    H(Allgather, (const void* b, N n, T t, void* d, N m, T u, C c), (b, n, t, d, m, u, c))         \
    H(Allgatherv, (const void* b, N n, T t, void* d, const N m[], const D p[], T u, C c),          \
      (b, n, t, d, m, p, u, c))                                                                    \
    H(Alltoall, (const void* b, N n, T t, void* d, N m, T u, C c), (b, n, t, d, m, u, c))          \
    H(Alltoallv,                                                                                   \
      (const void* b, const N n[], const D p[], T t, void* d, const N m[], const D q[], T u, C c), \
      (b, n, p, t, d, m, q, u, c))                                                                 \
    H(Alltoallw,                                                                                   \
      (const void* b, const N n[], const D p[], const T t[], void* d, const N m[], const D q[],    \
       const T u[], C c),                                                                          \
      (b, n, p, t, d, m, q, u, c))

WITH_BUFFERS(ADVANCES, int, int)
#if MPI_VERSION >= 4
WITH_BUFFERS(ADVANCES_C, MPI_Count, MPI_Aint)
#endif

ADVANCES(Probe, (int from, int tag, C c, S s), (from, tag, c, s))
ADVANCES(Iprobe, (int from, int tag, C c, int* f, S s), (from, tag, c, f, s))
ADVANCES(Mprobe, (int from, int tag, C c, MPI_Message* m, S s), (from, tag, c, m, s))
ADVANCES(Wait, (R r, S s), (r, s))
ADVANCES(Waitall, (int n, MPI_Request r[], MPI_Status s[]), (n, r, s))
ADVANCES(Waitany, (int n, MPI_Request r[], int* k, S s), (n, r, k, s))
ADVANCES(Waitsome, (int n, MPI_Request r[], int* m, int k[], MPI_Status s[]), (n, r, m, k, s))
ADVANCES(Test, (R r, int* f, S s), (r, f, s))
ADVANCES(Testall, (int n, MPI_Request r[], int* f, MPI_Status s[]), (n, r, f, s))
ADVANCES(Testany, (int n, MPI_Request r[], int* k, int* f, S s), (n, r, k, f, s))
ADVANCES(Testsome, (int n, MPI_Request r[], int* m, int k[], MPI_Status s[]), (n, r, m, k, s))
ADVANCES(Barrier, (C c), (c))
ADVANCES(Comm_dup, (C c, C* d), (c, d))
ADVANCES(Comm_split, (C c, int color, int key, C* d), (c, color, key, d))
ADVANCES(Win_fence, (int a, MPI_Win w), (a, w))
ADVANCES(Win_wait, (MPI_Win w), (w))
ADVANCES(Win_start, (MPI_Group g, int a, MPI_Win w), (g, a, w))
ADVANCES(Win_complete, (MPI_Win w), (w))
ADVANCES(Win_lock, (int k, int r, int a, MPI_Win w), (k, r, a, w))
ADVANCES(Win_unlock, (int r, MPI_Win w), (r, w))
ADVANCES(Win_flush, (int r, MPI_Win w), (r, w))
ADVANCES(Win_flush_all, (MPI_Win w), (w))
ADVANCES(Win_sync, (MPI_Win w), (w))
