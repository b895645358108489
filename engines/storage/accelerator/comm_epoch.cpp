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
std::atomic<bool> communication_is_assumed{false};

}  // namespace

namespace assay::storage {

std::uint64_t comm_epoch() {
    return communication_is_assumed.load(std::memory_order_relaxed)
               ? epoch.fetch_add(1) + 1
               : epoch.load(std::memory_order_relaxed);
}
void advance_comm_epoch() { epoch.fetch_add(1); }
void assume_communication() { communication_is_assumed = true; }

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
// Short names of types in the lists below.
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
      (b, n, p, t, d, m, q, u, c))                                                                 \
    H(Neighbor_allgather, (const void* b, N n, T t, void* d, N m, T u, C c),                       \
      (b, n, t, d, m, u, c))                                                                       \
    H(Neighbor_allgatherv, (const void* b, N n, T t, void* d, const N m[], const D p[], T u, C c), \
      (b, n, t, d, m, p, u, c))                                                                    \
    H(Neighbor_alltoall, (const void* b, N n, T t, void* d, N m, T u, C c), (b, n, t, d, m, u, c)) \
    H(Neighbor_alltoallv,                                                                          \
      (const void* b, const N n[], const D p[], T t, void* d, const N m[], const D q[], T u, C c), \
      (b, n, p, t, d, m, q, u, c))                                                                 \
    H(Neighbor_alltoallw,                                                                          \
      (const void* b, const N n[], const MPI_Aint p[], const T t[], void* d, const N m[],          \
       const MPI_Aint q[], const T u[], C c),                                                      \
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
ADVANCES(Improbe, (int from, int tag, C c, int* f, MPI_Message* m, S s), (from, tag, c, f, m, s))
ADVANCES(Request_get_status, (MPI_Request r, int* f, S s), (r, f, s))
ADVANCES(Barrier, (C c), (c))
#if MPI_VERSION >= 4
ADVANCES(Parrived, (MPI_Request r, int part, int* f), (r, part, f))
#endif

// Collective calls that make and free communicators.
ADVANCES(Comm_dup, (C c, C* d), (c, d))
ADVANCES(Comm_dup_with_info, (C c, MPI_Info i, C* d), (c, i, d))
ADVANCES(Comm_split, (C c, int color, int key, C* d), (c, color, key, d))
ADVANCES(Comm_split_type, (C c, int type, int key, MPI_Info i, C* d), (c, type, key, i, d))
ADVANCES(Comm_create, (C c, MPI_Group g, C* d), (c, g, d))
ADVANCES(Comm_create_group, (C c, MPI_Group g, int tag, C* d), (c, g, tag, d))
ADVANCES(Comm_set_info, (C c, MPI_Info i), (c, i))
ADVANCES(Comm_free, (C * c), (c))
ADVANCES(Comm_disconnect, (C * c), (c))
ADVANCES(Comm_accept, (const char* port, MPI_Info i, int root, C c, C* d), (port, i, root, c, d))
ADVANCES(Comm_connect, (const char* port, MPI_Info i, int root, C c, C* d), (port, i, root, c, d))
ADVANCES(Comm_join, (int fd, C* d), (fd, d))
ADVANCES(Comm_spawn,
         (const char* program, char* a[], int n, MPI_Info i, int root, C c, C* d, int codes[]),
         (program, a, n, i, root, c, d, codes))
ADVANCES(Comm_spawn_multiple,
         (int k, char* program[], char** a[], const int n[], const MPI_Info i[], int root, C c,
          C* d, int codes[]),
         (k, program, a, n, i, root, c, d, codes))
ADVANCES(Intercomm_create, (C c, int leader, C peer, int remote, int tag, C* d),
         (c, leader, peer, remote, tag, d))
ADVANCES(Intercomm_merge, (C c, int high, C* d), (c, high, d))
ADVANCES(Cart_create, (C c, int n, const int m[], const int wrap[], int order, C* d),
         (c, n, m, wrap, order, d))
ADVANCES(Cart_sub, (C c, const int keep[], C* d), (c, keep, d))
ADVANCES(Graph_create, (C c, int n, const int index[], const int edges[], int order, C* d),
         (c, n, index, edges, order, d))
ADVANCES(Dist_graph_create,
         (C c, int n, const int nodes[], const int m[], const int to[], const int weights[],
          MPI_Info i, int order, C* d),
         (c, n, nodes, m, to, weights, i, order, d))
ADVANCES(Dist_graph_create_adjacent,
         (C c, int n, const int from[], const int weights[], int m, const int to[],
          const int weights2[], MPI_Info i, int order, C* d),
         (c, n, from, weights, m, to, weights2, i, order, d))
ADVANCES(Lookup_name, (const char* service, MPI_Info i, char* port), (service, i, port))
#if MPI_VERSION >= 4
ADVANCES(Comm_create_from_group, (MPI_Group g, const char* tag, MPI_Info i, MPI_Errhandler e, C* d),
         (g, tag, i, e, d))
ADVANCES(Intercomm_create_from_groups,
         (MPI_Group g, int leader, MPI_Group h, int remote, const char* tag, MPI_Info i,
          MPI_Errhandler e, C* d),
         (g, leader, h, remote, tag, i, e, d))
#endif

// Windows (one-sided communication): collective calls, and the completion and synchronization of
// accesses.
#define WITH_SIZES(H, D)                                                               \
    H(Win_create, (void* b, MPI_Aint n, D unit, MPI_Info i, C c, MPI_Win* w),          \
      (b, n, unit, i, c, w))                                                           \
    H(Win_allocate, (MPI_Aint n, D unit, MPI_Info i, C c, void* b, MPI_Win* w),        \
      (n, unit, i, c, b, w))                                                           \
    H(Win_allocate_shared, (MPI_Aint n, D unit, MPI_Info i, C c, void* b, MPI_Win* w), \
      (n, unit, i, c, b, w))
WITH_SIZES(ADVANCES, int)
#if MPI_VERSION >= 4
WITH_SIZES(ADVANCES_C, MPI_Aint)
#endif
ADVANCES(Win_create_dynamic, (MPI_Info i, C c, MPI_Win* w), (i, c, w))
ADVANCES(Win_set_info, (MPI_Win w, MPI_Info i), (w, i))
ADVANCES(Win_free, (MPI_Win * w), (w))
ADVANCES(Win_fence, (int a, MPI_Win w), (a, w))
ADVANCES(Win_wait, (MPI_Win w), (w))
ADVANCES(Win_test, (MPI_Win w, int* f), (w, f))
ADVANCES(Win_start, (MPI_Group g, int a, MPI_Win w), (g, a, w))
ADVANCES(Win_complete, (MPI_Win w), (w))
ADVANCES(Win_lock, (int k, int r, int a, MPI_Win w), (k, r, a, w))
ADVANCES(Win_lock_all, (int a, MPI_Win w), (a, w))
ADVANCES(Win_unlock, (int r, MPI_Win w), (r, w))
ADVANCES(Win_unlock_all, (MPI_Win w), (w))
ADVANCES(Win_flush, (int r, MPI_Win w), (r, w))
ADVANCES(Win_flush_all, (MPI_Win w), (w))
ADVANCES(Win_flush_local, (int r, MPI_Win w), (r, w))
ADVANCES(Win_flush_local_all, (MPI_Win w), (w))
ADVANCES(Win_sync, (MPI_Win w), (w))
