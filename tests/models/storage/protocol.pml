/* The protocol of the store (engines/storage/store, engines/storage/accelerator), as a model for spin: which bytes may
 * leave a store, and when a sync may be told as done. docs/design/storage-protocol.md explains it and its
 * configurations; tests/python/accelerator/test_protocol.py runs them.
 *
 * A record is its sequence: records are numbered 1, 2, ... in the order of the job's clock, and the value of a byte is
 * the sequence of the record that wrote it, so that "newer" is "greater". A truncation writes its own sequence into
 * the bytes that it cuts off. A cell is one byte of one file. Steps that hold the drain's lock throughout are atomic.
 *
 * FAULT_n plants a fault that the code had; RULE_x takes out one rule of the protocol; PROBE_x shows that a state is
 * reached. With each of them an assertion is violated. */

/* ---- the configuration */

#ifndef NODES
#define NODES 2
#endif
#ifndef RINGS
#define RINGS NODES /* ranks of the job, a ring each */
#endif
#ifndef FILES
#define FILES 1
#endif
#ifndef BYTES
#define BYTES 1 /* of a file */
#endif
#ifndef RECORDS
#define RECORDS 3
#endif
#ifndef FAILURES
#define FAILURES 1 /* failed writes to the medium: in an fsync, or when another node takes a page over */
#endif
#ifndef WRITE_FAILURES
#define WRITE_FAILURES 0 /* refused writes into the file */
#endif
#ifndef KILLS
#define KILLS 0 /* of the program, or of a drain */
#endif
#ifndef NODE_KILLS
#define NODE_KILLS 0
#endif
#ifndef SYNCS
#define SYNCS 1 /* collective syncs at level file */
#endif
#ifndef SELF_SYNCS
#define SELF_SYNCS 0 /* syncs at level file through a handle of one node */
#endif
#ifndef TRUNCATIONS
#define TRUNCATIONS 0
#endif

#define CELLS (FILES * BYTES)
#define FILE(cell) ((cell) / BYTES)
#define NODE(ring) ((ring) * NODES / RINGS)
#define SLOT(node, file) ((node) * FILES + (file))
#define SLOTS (NODES * FILES)
#define MAX(a, b) ((a) > (b) -> (a) : (b))

/* ---- the stores. Arrays over records start at 1. */

#define NOWHERE 0
#define PUBLISHED 1 /* drained <= its position < tail */
#define DRAINED 2   /* first <= its position < drained */
#define EVICTED 3   /* its position < first, or its store was removed */
byte place[RECORDS + 1];
byte ring_of[RECORDS + 1];
byte cell_of[RECORDS + 1]; /* of a truncation: the first cell of its file */
bit truncates[RECORDS + 1];
bit resolved[RECORDS + 1]; /* the resolver has put it over the data of other nodes */
byte clock = 1;            /* the next sequence */

#define IN_RING(s) (place[s] == PUBLISHED || place[s] == DRAINED)

#define REMOVED 0
#define PRESENT 1
#define LOST 2 /* with its node */
byte store[NODES];
bit drain_lock[NODES];
byte undrained[NODES]; /* published records of the node */
byte superseded[NODES * CELLS]; /* data of the node that are older are left out */

/* A file's slot in the store of a node. */
byte drained_to[SLOTS];
byte durable[SLOTS];
bit error[SLOTS];
bit rewrites_pending[SLOTS]; /* rewrites != rewrites_synced */
bit rewrites_failed[SLOTS];  /* a failed fsync may have lost them */
byte unsettled_from[FILES];  /* `settled` */
bit deleted[FILES];

/* The fsync of a slot: who holds its lock, and what it has noted. */
#define NOBODY 0
#define PROGRAM 1
#define DRAIN 2
#define DEAD 3
byte syncing[SLOTS];
byte sync_before[SLOTS];
bit sync_covers[SLOTS]; /* all rewrites so far are older than this fsync */
bit sync_failed[SLOTS];

#if defined(FAULT_2) || defined(FAULT_10)
bit dirty[SLOTS];
#define NEEDS_SYNC(slot) dirty[slot]
#else
#define NEEDS_SYNC(slot) (drained_to[slot] >= durable[slot] || rewrites_pending[slot])
#endif
#ifdef FAULT_12
bit failed_before[SLOTS];
#endif

/* ---- the file system: pages of a file as all nodes see them, and the medium */

byte cached[CELLS];
byte dirty_at[CELLS]; /* 1 + the node whose kernel has it to write back; 0: clean */
byte medium[CELLS];
bit write_back_failed[SLOTS]; /* the next fsync of that node tells it */
bit gone[FILES];              /* the file has no name left */
byte failures = FAILURES, write_failures = WRITE_FAILURES;

/* ---- the program */

bit stop;   /* it is killed */
bit killed; /* it was killed */
bit recovering; /* a drain was killed */
bit closing; /* it ends: its files are closed */
bit over;
byte kills = KILLS, node_kills = NODE_KILLS;
bit kill_drain[NODES];
byte syncs = SYNCS, self_syncs = SELF_SYNCS, truncations = TRUNCATIONS;

#ifdef DIRECT
bit direct[FILES];   /* the file's route */
byte valid_from = 0; /* readers ignore older records */
byte unsynced[CELLS]; /* the ledger: written past the store since the last fsync */
bit lost[CELLS];      /* the ledger: a failed fsync may have lost it */
#endif
#ifdef NAMES
byte name[2]; /* 1 + the file of that name; 0: none */
bit symbolic_link = 1; /* one that leads to the first name */
#define LINKS(file) ((name[0] == (file) + 1) + (name[1] == (file) + 1))
#endif

/* ---- what must hold */

byte left[CELLS];     /* the newest byte that has left a store */
byte promised[CELLS]; /* the newest byte of which a sync or close at level file has told success */
byte cut[FILES];      /* the newest truncation that has returned */
bit contested[CELLS]; /* several nodes have written it since it was settled: without a sync it has no order after a kill */
bit excused[CELLS];   /* its newest data were lost with a node, before a sync at level file */

bit left_byte_is_safe = 1;
bit evicted_byte_is_durable = 1;
bit synced_byte_is_durable = 1;
bit cut_byte_stays_away = 1;
bit read_is_newest = 1;
bit other_name_stays = 1;

/* Variables of loops and intermediate results; 0 between two steps. */
byte i, j, k, m, v, b;

/* Of all cells: what has left a store is on the medium, or a store still has something newer. */
inline check() {
    d_step {
        i = 0;
        do
        :: i < CELLS ->
            v = medium[i];
            j = 1;
            do
            :: j <= RECORDS ->
                if
                :: IN_RING(j) && !truncates[j] && cell_of[j] == i && j > v -> v = j
                :: else
                fi;
                j++
            :: else -> break
            od;
            if
            :: !gone[FILE(i)] ->
                left_byte_is_safe = left_byte_is_safe && (v >= left[i] || excused[i]);
                synced_byte_is_durable = synced_byte_is_durable && medium[i] >= promised[i];
                cut_byte_stays_away = cut_byte_stays_away && cached[i] >= cut[FILE(i)] && medium[i] >= cut[FILE(i)]
            :: else
            fi;
            i++
        :: else -> break
        od;
        assert(left_byte_is_safe);
        assert(synced_byte_is_durable);
        assert(cut_byte_stays_away);
        i = 0; j = 0; v = 0
    }
}

/* ---- the file system's steps */

/* A node writes a byte into the file. Pages that another node has to write back are written back first; that may fail,
 * and then they are lost. (ONE_KERNEL: the nodes share one page cache.) */
inline put(node, cell, sequence) {
#ifndef ONE_KERNEL
    if
    :: dirty_at[cell] && dirty_at[cell] != (node) + 1 ->
        if
        :: medium[cell] = cached[cell]
        :: failures > 0 -> failures--; write_back_failed[SLOT(dirty_at[cell] - 1, FILE(cell))] = 1
        fi
    :: else
    fi;
#endif
    cached[cell] = sequence;
    dirty_at[cell] = (node) + 1
}

#ifdef ONE_KERNEL
#define WRITES_BACK(node, cell) (dirty_at[cell] != 0)
#else
#define WRITES_BACK(node, cell) (dirty_at[cell] == (node) + 1)
#endif

/* What fsync does. If it fails, each page was written or not, and all count as clean. An earlier failure is told too. */
inline write_back(node, file) {
    b = 0;
    if
    :: failures > 0 ->
        failures--;
        b = 1;
#ifdef ONE_KERNEL
        /* Each descriptor of the file tells it once. */
        write_back_failed[SLOT(NODES - 1 - (node), file)] = NODES > 1
#endif
    :: true
    fi;
    k = (file) * BYTES;
    do
    :: k < (file) * BYTES + BYTES ->
        if
        :: WRITES_BACK(node, k) ->
            if
            :: medium[k] = cached[k]
            :: b
            fi;
            dirty_at[k] = 0
        :: else
        fi;
        k++
    :: else -> break
    od;
    sync_failed[SLOT(node, file)] = b || write_back_failed[SLOT(node, file)];
    write_back_failed[SLOT(node, file)] = 0;
    k = 0; b = 0;
    check()
}

/* ---- the node's steps */

/* The oldest record of the file that is not drained; the clock if all are. */
inline oldest_published(node, file, result) {
    result = clock;
    m = RECORDS;
    do
    :: m > 0 ->
        if
        :: place[m] == PUBLISHED && NODE(ring_of[m]) == (node) && FILE(cell_of[m]) == (file) -> result = m
        :: else
        fi;
        m--
    :: else -> break
    od
}

#ifdef RULE_LEDGER
#define NOTES_LEDGER(node, file) (syncing[SLOT(node, file)] == PROGRAM)
#else
#define NOTES_LEDGER(node, file) true
#endif

inline note_failed_sync(node, file) {
#ifdef DIRECT
    m = (file) * BYTES;
    do
    :: m < (file) * BYTES + BYTES ->
        if
        :: unsynced[m] && NOTES_LEDGER(node, file) -> lost[m] = 1; unsynced[m] = 0
        :: else
        fi;
        m++
    :: else -> break
    od;
#endif
#ifdef FAULT_12
    if
    :: !failed_before[SLOT(node, file)] -> error[SLOT(node, file)] = 1; failed_before[SLOT(node, file)] = 1
    :: else
    fi;
#else
    error[SLOT(node, file)] = 1;
#endif
#ifndef RULE_LOST_REWRITES
    rewrites_failed[SLOT(node, file)] = rewrites_pending[SLOT(node, file)];
#endif
    skip
}

/* The owner of the fsync's lock was killed. */
inline abandon_sync(node, file) {
    syncing[SLOT(node, file)] = DEAD;
    sync_before[SLOT(node, file)] = 0;
    sync_covers[SLOT(node, file)] = 0;
    sync_failed[SLOT(node, file)] = 0
}

/* begin_sync: takes the lock of the slot's fsync, and notes under the drain's lock what it will cover. */
#define MAY_BEGIN_SYNC(node, file) \
    (!drain_lock[node] && (syncing[SLOT(node, file)] == NOBODY || syncing[SLOT(node, file)] == DEAD))
inline begin_sync(node, file, who) {
    d_step {
#ifndef RULE_DEAD_SYNC
        if
        :: syncing[SLOT(node, file)] == DEAD -> note_failed_sync(node, file)
        :: else
        fi;
#endif
        syncing[SLOT(node, file)] = who;
        sync_covers[SLOT(node, file)] = 1;
        if
        :: error[SLOT(node, file)] -> sync_before[SLOT(node, file)] = durable[SLOT(node, file)]
        :: else -> oldest_published(node, file, sync_before[SLOT(node, file)])
        fi;
#ifdef FAULT_2
        dirty[SLOT(node, file)] = 0;
#endif
        m = 0
    }
}

/* end_sync: notes the result under the drain's lock. */
inline end_sync(node, file) {
    atomic {
        !drain_lock[node] ->
        d_step {
            if
            :: sync_failed[SLOT(node, file)] ->
#ifdef FAULT_2
                dirty[SLOT(node, file)] = 1;
#endif
                note_failed_sync(node, file)
            :: else ->
                durable[SLOT(node, file)] = sync_before[SLOT(node, file)];
                if
                :: sync_covers[SLOT(node, file)] && !rewrites_failed[SLOT(node, file)] ->
                    rewrites_pending[SLOT(node, file)] = 0
                :: else
                fi;
#ifdef FAULT_10
                dirty[SLOT(node, file)] = 0;
#endif
            fi;
            syncing[SLOT(node, file)] = NOBODY;
            sync_before[SLOT(node, file)] = 0;
            sync_covers[SLOT(node, file)] = 0;
            sync_failed[SLOT(node, file)] = 0
        }
    }
}

/* Whether record s has data of node and file that a drain or a retry may write: nothing of it is superseded, cut off or
 * of a deleted file. */
#define MAY_WRITE(s, node, cell) (!truncates[s] && cell_of[s] == (cell) && NODE(ring_of[s]) == (node) && \
    s > superseded[(node) * CELLS + (cell)] && !deleted[FILE(cell)])

#ifdef FAULT_8
#define AFTER_CUT_IN_BATCH(s, cut) true
#else
#define AFTER_CUT_IN_BATCH(s, cut) ((s) > (cut))
#endif
#ifdef RULE_CUT_REPEATS
#define AFTER_CUT(s, cut) true
#else
#define AFTER_CUT(s, cut) ((s) > (cut))
#endif
#ifdef FAULT_7
#define IS_VALID(s) ((s) >= valid_from)
#else
#define IS_VALID(s) true
#endif

/* The newest truncation of the file in the rings of the node. */
inline find_cut(node, file, result) {
    result = 0;
    m = 1;
    do
    :: m <= RECORDS ->
        if
        :: truncates[m] && IN_RING(m) && NODE(ring_of[m]) == (node) && FILE(cell_of[m]) == (file) -> result = m
        :: else
        fi;
        m++
    :: else -> break
    od
}

/* drain_batch, its second part: writes the newest data of each byte among the published records. */
inline write_batch(node) {
    k = 0;
    do
    :: k < CELLS ->
        d_step {
            find_cut(node, FILE(k), i);
            v = 0;
            m = 1;
            do
            :: m <= RECORDS ->
                if
                :: place[m] == PUBLISHED && m <= batch_end && MAY_WRITE(m, node, k) && AFTER_CUT_IN_BATCH(m, i) -> v = m
                :: else
                fi;
                m++
            :: else -> break
            od;
            i = 0; m = 0
        }
        if
        :: v && error[SLOT(node, FILE(k))] /* it is written with the failed data */
        :: v && !error[SLOT(node, FILE(k))] -> put(node, k, v)
        :: v && !error[SLOT(node, FILE(k))] && write_failures > 0 ->
            write_failures--; error[SLOT(node, FILE(k))] = 1
        :: !v
        fi;
        k++
    :: else -> break
    od;
    k = 0; v = 0;
    check()
}

/* retry: what is not durable counts as not written after an error, and is written again. Rewrites that a failed fsync
 * may have lost are among the unsettled records, which may be durable once. */
inline retry(node, file) {
    k = (file) * BYTES;
    b = 0;
    do
    :: k < (file) * BYTES + BYTES ->
        d_step {
            find_cut(node, file, i);
            v = 0;
            m = 1;
            do
            :: m <= RECORDS ->
                if
                :: place[m] == DRAINED && MAY_WRITE(m, node, k) && AFTER_CUT(m, i) && IS_VALID(m) &&
                    (m >= durable[SLOT(node, file)] ||
                        (rewrites_failed[SLOT(node, file)] && m >= unsettled_from[file])) -> v = m
                :: else
                fi;
                m++
            :: else -> break
            od;
            i = 0; m = 0
        }
        if
        :: v -> put(node, k, v)
        :: v && write_failures > 0 -> write_failures--; b = 1
        :: !v
        fi;
        k++
    :: else -> break
    od;
    error[SLOT(node, file)] = b;
#ifndef RULE_REPEATS_COUNT
    /* Rewrites are counted again: an fsync that runs may be older. */
    if
    :: rewrites_failed[SLOT(node, file)] -> sync_covers[SLOT(node, file)] = 0
    :: else
    fi;
#endif
    if
    :: !b -> rewrites_failed[SLOT(node, file)] = 0
    :: else
    fi;
#if defined(FAULT_2) || defined(FAULT_10)
    dirty[SLOT(node, file)] = 1;
#endif
    k = 0; v = 0; b = 0;
    check()
}

#ifdef FAULT_9
#define HOLDS_STORE(node, file) (!recovering && NEEDS_SYNC(SLOT(node, file)))
#else
#define HOLDS_STORE(node, file) NEEDS_SYNC(SLOT(node, file))
#endif

/* Whether the node may lose its store: `result`. */
inline may_remove(node, result) {
    result = 1;
    k = 1;
    do
    :: k <= RECORDS ->
        if
        :: place[k] == PUBLISHED && NODE(ring_of[k]) == (node) -> result = 0
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0;
    do
    :: k < FILES ->
        if
        :: !deleted[k] && (error[SLOT(node, k)] || HOLDS_STORE(node, k)) -> result = 0
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0
}

inline remove_store(node) {
    store[node] = REMOVED;
    k = 1;
    do
    :: k <= RECORDS ->
        if
        :: IN_RING(k) && NODE(ring_of[k]) == (node) ->
            if
            :: !truncates[k] && !(killed && contested[cell_of[k]]) -> left[cell_of[k]] = MAX(left[cell_of[k]], k)
            :: else
            fi;
            place[k] = EVICTED
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0;
    check()
}



/* ---- a drain: a thread of a rank, the background drain, or recovery. If it is killed, another one goes on. */

#define DRAIN_FILE(file) \
        /* retry */ \
        :: atomic { store[node] == PRESENT && !drain_lock[node] && error[SLOT(node, file)] && !deleted[file] -> \
            retry(node, file) } \
        /* sync */ \
        :: atomic { store[node] == PRESENT && NEEDS_SYNC(SLOT(node, file)) && !error[SLOT(node, file)] && \
            !deleted[file] && MAY_BEGIN_SYNC(node, file) -> begin_sync(node, file, DRAIN) } \
            atomic { write_back(node, file) } \
            end_sync(node, file)

proctype Drain(byte node) {
    byte batch_end;
    bit may;
end_again:
    {
end_loop:
        do
        /* drain_batch: the lock and drained_to, the writes, drained */
        :: atomic { store[node] == PRESENT && undrained[node] && !drain_lock[node] ->
            d_step {
                drain_lock[node] = 1;
                m = 1;
                do
                :: m <= RECORDS ->
                    if
                    :: place[m] == PUBLISHED && NODE(ring_of[m]) == node ->
                        batch_end = m;
                        if
                        :: !truncates[m] ->
                            drained_to[SLOT(node, FILE(cell_of[m]))] = m;
#if defined(FAULT_2) || defined(FAULT_10)
                            dirty[SLOT(node, FILE(cell_of[m]))] = 1
#endif
                        :: else
                        fi
                    :: else
                    fi;
                    m++
                :: else -> break
                od;
                m = 0
            } }
            atomic { write_batch(node) }
            d_step {
                m = 1;
                do
                :: m <= batch_end ->
                    if
                    :: place[m] == PUBLISHED && NODE(ring_of[m]) == node ->
                        place[m] = DRAINED;
                        undrained[node]--
                    :: else
                    fi;
                    m++
                :: else -> break
                od;
                m = 0;
                batch_end = 0;
                drain_lock[node] = 0
            }
        DRAIN_FILE(0)
#if FILES > 1
        DRAIN_FILE(1)
#endif
        /* finish */
        :: atomic { store[node] == PRESENT && over && !undrained[node] && !drain_lock[node] ->
            d_step { may_remove(node, may) }
            if
            :: may -> may = 0; remove_store(node); goto done
            :: else
            fi }
        od
    } unless { kill_drain[node] };
    /* Locks of a process that has ended are taken over. A batch is written again; an fsync counts as failed. */
    atomic {
        kill_drain[node] = 0;
        recovering = 1;
        may = 0;
        if
        :: batch_end -> batch_end = 0; drain_lock[node] = 0
        :: else
        fi;
        m = 0;
        do
        :: m < FILES ->
            if
            :: syncing[SLOT(node, m)] == DRAIN -> abandon_sync(node, m)
            :: else
            fi;
            m++
        :: else -> break
        od;
        m = 0
    }
    goto end_again;
done:
    skip
}

/* ---- the ranks' steps */

inline publish(ring, cell, truncation) {
    ring_of[clock] = ring;
    cell_of[clock] = cell;
    truncates[clock] = truncation;
    place[clock] = PUBLISHED;
    undrained[NODE(ring)]++;
    m = 1;
    do
    :: m < clock ->
        if
        :: NODE(ring_of[m]) != NODE(ring) && !truncates[m] && cell_of[m] == (cell) &&
            m >= unsettled_from[FILE(cell)] && !truncation -> contested[cell] = 1
        :: else
        fi;
        m++
    :: else -> break
    od;
    m = 0;
    clock++
}

/* publish_superseded: the node leaves out its unsettled bytes of which another node has newer ones in its store. */
inline publish_superseded(node, file) {
    d_step {
#ifndef FAULT_5
        m = 1;
        do
        :: m <= RECORDS ->
            if
            :: IN_RING(m) && NODE(ring_of[m]) == (node) && FILE(cell_of[m]) == (file) && !truncates[m] &&
                m >= unsettled_from[file] ->
                v = m + 1;
                do
                :: v <= RECORDS ->
                    if
                    :: IN_RING(v) && NODE(ring_of[v]) != (node) && cell_of[v] == cell_of[m] && !truncates[v] &&
                        v > superseded[(node) * CELLS + cell_of[m]] -> superseded[(node) * CELLS + cell_of[m]] = v
                    :: else
                    fi;
                    v++
                :: else -> break
                od
            :: else
            fi;
            m++
        :: else -> break
        od;
        m = 0; v = 0
#else
        skip
#endif
    }
}

/* Whether no other node will write data of the file again that are older than `sequence`. */
inline others_are_beyond(node, cell, sequence, result) {
    result = 1;
    m = 1;
    do
    :: m < (sequence) ->
        if
        :: IN_RING(m) && NODE(ring_of[m]) != (node) && !truncates[m] && FILE(cell_of[m]) == FILE(cell) &&
            m >= durable[SLOT(NODE(ring_of[m]), FILE(cell))] -> result = 0
        :: else
        fi;
        m++
    :: else -> break
    od;
#ifndef RULE_REMOTE_REWRITES
    m = 0;
    do
    :: m < NODES ->
        if
        :: m != (node) && rewrites_pending[SLOT(m, FILE(cell))] -> result = 0
        :: else
        fi;
        m++
    :: else -> break
    od;
#endif
    m = 0
}

/* Whether every other node has published that `sequence` supersedes its data of the cell, or has none. */
inline others_leave_out(node, cell, sequence, result) {
    result = 1;
    m = 1;
    do
    :: m < (sequence) ->
        if
        :: IN_RING(m) && NODE(ring_of[m]) != (node) && !truncates[m] && cell_of[m] == (cell) &&
            superseded[NODE(ring_of[m]) * CELLS + (cell)] < (sequence) -> result = 0
        :: else
        fi;
        m++
    :: else -> break
    od;
    m = 0
}

/* resolve: the node writes its newest bytes again over those of other nodes. `rewrites` is counted first. A resolution
 * lasts only if no other node writes older data afterwards. */
inline resolve(node, file, succeeded) {
    k = (file) * BYTES;
    do
    :: k < (file) * BYTES + BYTES ->
        d_step {
            v = 0; j = 0;
            m = 1;
            do
            :: m <= RECORDS ->
                if
                :: place[m] != NOWHERE && !truncates[m] && cell_of[m] == k ->
                    if
                    :: NODE(ring_of[m]) != (node) -> j = 1; v = 0
                    :: NODE(ring_of[m]) == (node) && place[m] == DRAINED && m >= unsettled_from[file] &&
                        MAY_WRITE(m, node, k) && !resolved[m] && m > cut[file] && j -> v = m
                    :: else -> v = 0
                    fi
                :: else
                fi;
                m++
            :: else -> break
            od;
            m = 0; j = 0;
            if
            :: v ->
                others_are_beyond(node, k, v, i);
                others_leave_out(node, k, v, j);
#ifndef RULE_RESOLVE_LAST
                resolved[v] = i || j;
#else
                /* Instead, the others have drained what is older. */
                i = 1;
                m = 1;
                do
                :: m < v ->
                    if
                    :: place[m] == PUBLISHED && NODE(ring_of[m]) != (node) -> i = 0
                    :: else
                    fi;
                    m++
                :: else -> break
                od;
                m = 0;
                resolved[v] = i;
#endif
                i = 0; j = 0;
                rewrites_pending[SLOT(node, file)] = 1;
                sync_covers[SLOT(node, file)] = 0
#if defined(FAULT_2) || defined(FAULT_10)
                ; dirty[SLOT(node, file)] = 1
#endif
            :: else
            fi
        }
        if
#ifdef FAULT_6
        :: v && closing /* the descriptor is not held any more */
        :: v && !closing -> put(node, k, v)
#else
        :: v -> put(node, k, v)
#endif
        :: v && write_failures > 0 ->
            write_failures--; succeeded = 0;
            error[SLOT(node, file)] = 1;
#ifndef RULE_LOST_REWRITES
            rewrites_failed[SLOT(node, file)] = 1
#endif
        :: !v
        fi;
        k++
    :: else -> break
    od;
    k = 0; v = 0;
    check()
}

/* evict: the oldest record of the ring, if it may. */
inline evict(ring) {
    d_step {
        k = 1;
        do
        :: k <= RECORDS && !(IN_RING(k) && ring_of[k] == (ring)) -> k++
        :: else -> break
        od;
        b = 0;
        if
        :: k <= RECORDS && place[k] == DRAINED ->
#ifdef FAULT_1
            b = !error[SLOT(NODE(ring), FILE(cell_of[k]))];
#else
            b = k < durable[SLOT(NODE(ring), FILE(cell_of[k]))] && !error[SLOT(NODE(ring), FILE(cell_of[k]))] &&
                !rewrites_pending[SLOT(NODE(ring), FILE(cell_of[k]))];
#endif
#ifdef RULE_CUT_STAYS
            b = b || truncates[k];
#endif
#if NODES > 1 && !defined(FAULT_4)
            if
            :: b && !truncates[k] ->
#ifndef RULE_SUPERSEDING_IS_DURABLE
                j = MAX(k, superseded[NODE(ring) * CELLS + cell_of[k]]);
                if
                :: j > k ->
                    /* The newer byte is durable on its node. */
                    b = j < durable[SLOT(NODE(ring_of[j]), FILE(cell_of[k]))] || place[j] == EVICTED
                :: else
                fi;
#else
                j = k;
#endif
                if
                :: b -> others_are_beyond(NODE(ring), cell_of[k], j, i); b = i
                :: else
                fi;
                i = 0;
                /* Its conflicts are resolved. */
                if
                :: b && j == k && !resolved[k] ->
                    m = 1;
                    do
                    :: m < k ->
                        if
                        :: m >= unsettled_from[FILE(cell_of[k])] && NODE(ring_of[m]) != NODE(ring) &&
                            !truncates[m] && cell_of[m] == cell_of[k] -> b = 0
                        :: else
                        fi;
                        m++
                    :: else -> break
                    od;
                    m = 0
                :: else
                fi;
                j = 0
            :: else
            fi;
#endif
            b = b || deleted[FILE(cell_of[k])]
        :: else
        fi;
        if
        :: b ->
            place[k] = EVICTED;
            if
            :: !truncates[k] ->
                left[cell_of[k]] = MAX(left[cell_of[k]], k);
                evicted_byte_is_durable = medium[cell_of[k]] >= k || gone[FILE(cell_of[k])];
                assert(evicted_byte_is_durable)
            :: else
            fi
        :: else
        fi;
        b = 0; k = 0
    }
    check()
}

/* The newest record of the node in the file, or in all files. */
inline newest_of(node, file, result) {
    result = 0;
    m = 1;
    do
    :: m < clock ->
        if
        :: NODE(ring_of[m]) == (node) && FILE(cell_of[m]) == (file) && !truncates[m] -> result = m
        :: else
        fi;
        m++
    :: else -> break
    od;
    m = 0
}

/* Whether the node's fsync has covered all that the sync has to promise. */
inline is_covered(node, file, result) {
    newest_of(node, file, result);
#ifndef RULE_SYNC_COVERS
    result = result < durable[SLOT(node, file)] && !error[SLOT(node, file)] && !rewrites_pending[SLOT(node, file)]
#else
    result = 1
#endif
}

/* One node's fsync within a sync of the program. */
inline sync_node(node, file) {
    atomic { MAY_BEGIN_SYNC(node, file) -> begin_sync(node, file, PROGRAM) }
    atomic { write_back(node, file) }
    if
    :: sync_failed[SLOT(node, file)] -> ok = 0
    :: else
    fi;
    end_sync(node, file);
    d_step {
        is_covered(node, file, i);
        ok = ok && i;
        i = 0
    }
}

inline promise(file, node) {
    k = (file) * BYTES;
    do
    :: k < (file) * BYTES + BYTES ->
        m = 1;
        do
        :: m < clock ->
            if
            :: !truncates[m] && cell_of[m] == k && ((node) == NODES || NODE(ring_of[m]) == (node)) ->
                promised[k] = MAX(promised[k], m)
            :: else
            fi;
            m++
        :: else -> break
        od;
        if
        :: (node) == NODES -> contested[k] = 0
        :: else
        fi;
        k++
    :: else -> break
    od;
    m = 0; k = 0
}

inline truncate(ring, file) {
    d_step {
        publish(ring, (file) * BYTES, 1);
        cut[file] = clock - 1;
        k = (file) * BYTES;
        do
        :: k < (file) * BYTES + BYTES ->
            cached[k] = cut[file];
            medium[k] = cut[file];
            dirty_at[k] = 0;
#ifndef RULE_CUT_EVERYWHERE
            m = 0;
            do
            :: m < NODES ->
                if
                :: m != NODE(ring) -> superseded[m * CELLS + k] = cut[file]
                :: else
                fi;
                m++
            :: else -> break
            od;
            m = 0;
#endif
            k++
        :: else -> break
        od;
        k = 0
    }
}

#ifdef FAULT_13
#define IS_READ(s, node) (NODE(ring_of[s]) == (node))
#else
#define IS_READ(s, node) true
#endif
#ifdef RULE_TOMBSTONES
#define HAS_TOMBSTONE(s) false
#else
#define HAS_TOMBSTONE(s) true
#endif

/* read: the newest of all nodes' records of the byte, or the file if that was evicted. */
inline read(node, cell) {
    d_step {
        v = 0; j = 0;
        m = 1;
        do
        :: m < clock ->
            if
            :: cell_of[m] == (cell) ->
                j = m;
                if
                :: IN_RING(m) && IS_READ(m, node) -> v = m
                :: place[m] == EVICTED && HAS_TOMBSTONE(m) -> v = cached[cell];
                    if
                    :: !dirty_at[cell] && medium[cell] < v -> v = medium[cell] /* the page was dropped */
                    :: else
                    fi
                :: else
                fi
            :: else
            fi;
            m++
        :: else -> break
        od;
        read_is_newest = v >= j;
        assert(read_is_newest);
        m = 0; v = 0; j = 0
    }
}

#ifdef FAULT_7
#define MAY_BE_DIRECT true
#else
#define MAY_BE_DIRECT (!NEEDS_SYNC(0))
#endif

#ifdef NAMES
/* A name is removed; data are dropped with the last one. */
inline unlink(which) {
    j = name[which];
    name[which] = 0;
    if
    :: j && !LINKS(j - 1) -> gone[j - 1] = 1; deleted[j - 1] = 1
    :: else
    fi;
    j = 0
}
#endif

#define CHOOSE_RING(variable) \
    if \
    :: variable = 0 \
    :: RINGS > 1 -> variable = RINGS - 1 \
    fi
#define CHOOSE_CELL(variable) \
    if \
    :: variable = 0 \
    :: CELLS > 1 -> variable = CELLS - 1 \
    fi

#ifdef RULE_END_PUBLISHES
/* Instead, only if both nodes have data that are not durable. */
#define MUST_PUBLISH ((undrained[0] || NEEDS_SYNC(0)) && (undrained[1] || NEEDS_SYNC(1)))
#else
#define MUST_PUBLISH true
#endif

#ifdef PROBE_RECOVERED
#define IS_PROBED (recovering && killed)
#else
#define IS_PROBED true
#endif

proctype Program() {
    bit ok;
    byte node, ring, cell;
    {
        do
        /* write */
        :: atomic { clock <= RECORDS ->
            CHOOSE_RING(ring);
            CHOOSE_CELL(cell);
            if
            :: gone[FILE(cell)]
#ifdef NAMES
            :: !gone[FILE(cell)] && !LINKS(FILE(cell))
            :: !gone[FILE(cell)] && LINKS(FILE(cell)) -> d_step { publish(ring, cell, 0) }
#elif defined(DIRECT)
            :: !gone[FILE(cell)] && direct[FILE(cell)] ->
                put(NODE(ring), cell, clock);
                d_step {
                    ring_of[clock] = ring;
                    cell_of[clock] = cell;
                    unsynced[cell] = clock;
                    lost[cell] = 0;
                    clock++
                }
            :: !gone[FILE(cell)] && !direct[FILE(cell)] ->
                d_step { publish(ring, cell, 0); unsynced[cell] = 0; lost[cell] = 0 }
#else
            :: else -> d_step { publish(ring, cell, 0) }
#endif
            fi;
            ring = 0; cell = 0 }
#ifndef NO_EVICTION
        /* evict */
        :: atomic { clock > 1 -> CHOOSE_RING(ring); evict(ring); ring = 0 }
#if NODES > 1
        /* resolve, before an eviction */
        :: atomic { clock > 1 -> CHOOSE_RING(ring);
            if
            :: !drain_lock[NODE(ring)] -> resolve(NODE(ring), 0, ok)
            :: else
            fi;
            ring = 0; ok = 0 }
#endif
#endif
#if SYNCS > 0
        /* sync at level file, of all nodes */
        :: atomic { syncs > 0 && clock > 1 -> syncs--; ok = 1 }
#if NODES > 1
#ifdef RULE_RESOLVE_LAST
            /* Instead, each sync resolves all conflicts again. */
            atomic { k = 1;
                do
                :: k <= RECORDS -> resolved[k] = 0; k++
                :: else -> break
                od;
                k = 0 }
#endif
            do
            :: node < NODES ->
                atomic { publish_superseded(node, 0) }
                atomic { !drain_lock[node] -> node++ }
            :: else -> break
            od;
            node = 0;
#endif
            do
            :: node < NODES ->
                /* All is drained. The drain has repeated failed writes, or not. */
                atomic { !undrained[node] && !drain_lock[node] ->
                    if
                    :: error[SLOT(node, 0)] -> ok = 0
                    :: else
                    fi;
#if NODES > 1
                    resolve(node, 0, ok);
#endif
                    node++ }
            :: else -> break
            od;
            node = 0;
            do
            :: node < NODES -> sync_node(node, 0); node++
            :: else -> break
            od;
            atomic {
                node = 0;
                d_step {
#ifdef DIRECT
                    m = 0;
                    do
                    :: m < CELLS ->
                        ok = ok && !lost[m];
                        m++
                    :: else -> break
                    od;
                    m = 0;
                    if
                    :: ok -> unsynced[0] = 0; unsynced[CELLS - 1] = 0
                    :: else
                    fi;
#endif
                    if
                    :: ok ->
#ifdef PROBE_SYNC
                        j = contested[0];
                        assert(!j);
#endif
                        promise(0, NODES);
                        unsettled_from[0] = clock
                    :: else
                    fi;
                    ok = 0
                }
                check()
            }
#endif
#if SELF_SYNCS > 0
        /* sync at level file, through a handle of one node */
        :: atomic { self_syncs > 0 && clock > 1 -> self_syncs--; ok = 1; CHOOSE_RING(node) }
#ifndef RULE_ONE_NODE_SYNC
            do
            :: atomic {
                d_step { newest_of(node, 0, k); others_are_beyond(node, 0, k, i); cell = i; i = 0; k = 0 }
                if
                :: cell -> cell = 0; break
                :: else
                fi }
            od;
#endif
            atomic { !undrained[node] && !drain_lock[node] ->
                if
                :: error[SLOT(node, 0)] -> ok = 0
                :: else
                fi;
#ifndef RULE_ONE_NODE_SYNC
                resolve(node, 0, ok)
#endif
            }
            sync_node(node, 0);
            atomic {
                d_step {
                    if
                    :: ok -> promise(0, node)
                    :: else
                    fi;
                    ok = 0;
                    node = 0
                }
                check()
            }
#endif
#if TRUNCATIONS > 0
        /* set_size(0), through a handle of one rank */
        :: atomic { truncations > 0 && clock > 1 && clock <= RECORDS -> truncations--; CHOOSE_RING(ring) }
#ifndef FAULT_8
            do
            :: node < NODES -> atomic { !undrained[node] && !drain_lock[node] -> node++ }
            :: else -> break
            od;
            node = 0;
#endif
            atomic { truncate(ring, 0); ring = 0; check() }
#endif
#ifdef DIRECT
        /* enter_direct, leave_direct */
        :: d_step { !direct[0] && !undrained[0] && !drain_lock[0] && !error[0] && MAY_BE_DIRECT -> direct[0] = 1; valid_from = clock }
        :: d_step { direct[0] -> direct[0] = 0 }
#endif
#ifdef READS
        :: atomic { clock > 1 -> CHOOSE_RING(ring); CHOOSE_CELL(cell); read(NODE(ring), cell); ring = 0; cell = 0 }
#endif
#ifdef NAMES
        /* a hard link, a renaming, a new file of the old name */
        :: d_step { name[0] == 1 && !name[1] -> name[1] = 1 }
        :: d_step { name[0] == 1 && !name[1] -> name[1] = 1; name[0] = 0 }
        :: d_step { !name[0] && !gone[1] -> name[0] = 2 }
        /* remove: a name, or a symbolic link to it */
        :: d_step { name[0] -> unlink(0) }
        :: d_step { name[1] -> unlink(1) }
        :: d_step { symbolic_link -> symbolic_link = 0;
#ifdef FAULT_3
            if
            :: name[0] -> deleted[name[0] - 1] = 1
            :: else
            fi
#endif
            }
        /* delete on close, of the first file, which was opened by the first name */
        :: d_step { LINKS(0) ->
#ifdef FAULT_11
            if
            :: LINKS(0) == 1 -> deleted[0] = 1
            :: else
            fi;
            other_name_stays = name[0] != 2;
            name[0] = 0;
            gone[0] = !LINKS(0);
            assert(other_name_stays)
#else
            if
            :: name[0] == 1 -> unlink(0)
            :: else
            fi
#endif
            }
#endif
        :: break
        od;
        /* The end. Bytes that are not settled are published and resolved as before a sync. */
        closing = 1;
#if NODES > 1
        do
        :: node < NODES ->
            atomic {
                if
                :: MUST_PUBLISH -> publish_superseded(node, 0)
                :: else
                fi }
            atomic { !drain_lock[node] -> node++ }
        :: else -> break
        od;
        node = 0;
        do
        :: node < NODES -> atomic { !drain_lock[node] -> resolve(node, 0, ok); node++ }
        :: else -> break
        od;
        atomic { node = 0; ok = 0; contested[0] = 0; contested[CELLS - 1] = 0 }
#endif
        do
        :: node < NODES ->
            atomic { !drain_lock[node] ->
                d_step { may_remove(node, ok) }
                if
                :: ok -> ok = 0; remove_store(node)
                :: else
                fi;
                node++ }
        :: else -> break
        od;
        atomic { node = 0; over = 1 }
    } unless { stop };
    atomic {
        over = 1;
        if
        :: stop ->
            stop = 0;
            killed = 1;
            m = 0;
            do
            :: m < SLOTS ->
                if
                :: syncing[m] == PROGRAM -> syncing[m] = DEAD; sync_before[m] = 0; sync_covers[m] = 0; sync_failed[m] = 0
                :: else
                fi;
                m++
            :: else -> break
            od;
            m = 0
        :: else
        fi;
        ok = 0; node = 0; ring = 0; cell = 0
    }
#if defined(PROBE_REMOVED) || defined(PROBE_RECOVERED)
end_probe:
    atomic {
        store[0] == REMOVED && store[NODES - 1] == REMOVED && clock > RECORDS && IS_PROBED -> assert(!over)
    }
#endif
}

#if KILLS > 0 || NODE_KILLS > 0
inline lose_node(node) {
    d_step {
        store[node] = LOST;
        stop = !over;
        m = 1;
        do
        :: m <= RECORDS ->
            if
            :: IN_RING(m) && NODE(ring_of[m]) == (node) -> place[m] = EVICTED; excused[cell_of[m]] = 1
            :: else
            fi;
            m++
        :: else -> break
        od;
        m = 0;
        do
        :: m < CELLS ->
            if
            :: WRITES_BACK(node, m) -> cached[m] = medium[m]; dirty_at[m] = 0
            :: else
            fi;
            m++
        :: else -> break
        od;
        m = 0;
        do
        :: m < FILES ->
            write_back_failed[SLOT(node, m)] = 0;
            syncing[SLOT(node, m)] = NOBODY;
            m++
        :: else -> break
        od;
        m = 0;
        undrained[node] = 0;
        drain_lock[node] = 0
    }
    check()
}

/* Who is killed, and when. */
proctype Fate() {
end_loop:
    do
    :: d_step { kills > 0 && !over && !stop -> kills--; stop = 1 }
    :: d_step { kills > 0 && store[0] == PRESENT && !kill_drain[0] -> kills--; kill_drain[0] = 1 }
#if NODES > 1
    :: d_step { kills > 0 && store[1] == PRESENT && !kill_drain[1] -> kills--; kill_drain[1] = 1 }
#endif
#if NODE_KILLS > 0
    :: atomic { node_kills > 0 && store[0] == PRESENT && !stop -> node_kills--; lose_node(0) }
#if NODES > 1
    :: atomic { node_kills > 0 && store[1] == PRESENT && !stop -> node_kills--; lose_node(1) }
#endif
#endif
    od
}
#endif

init {
    atomic {
        store[0] = PRESENT;
        store[NODES - 1] = PRESENT;
#ifdef NAMES
        name[0] = 1;
#endif
        run Drain(0);
#if NODES > 1
        run Drain(1);
#endif
        run Program();
#if KILLS > 0 || NODE_KILLS > 0
        run Fate()
#endif
    }
}
