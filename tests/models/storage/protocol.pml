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

/* WRITERS, WRITTEN: the ring and the cell of each record, a decimal digit each, the last one for the first record.
 * EVICTOR: the only ring that evicts. If they are not defined, all are searched. */
#define DIGIT(digits, s) ((s) == 1 -> (digits) % 10 : ((s) == 2 -> (digits) / 10 % 10 : \
    ((s) == 3 -> (digits) / 100 % 10 : (digits) / 1000)))

#define CELLS (FILES * BYTES)
#define FILE(cell) ((cell) / BYTES)
#define NODE(ring) ((ring) * NODES / RINGS)
#if RINGS > NODES
#define UNDRAINED(node) (undrained[0] && NODE(0) == (node) || undrained[1] && NODE(1) == (node) || \
    undrained[RINGS - 1] && NODE(RINGS - 1) == (node))
#else
#define UNDRAINED(node) (undrained[node] != 0)
#endif
/* The ranks of the communicator of a collective call: all, or (OUTSIDE) not the second, or (`alone`) only that. */
#ifdef OUTSIDE
#define IN_COMM(ring) (((ring) == 1) == alone)
#else
#define IN_COMM(ring) true
#endif
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
byte clock = 1;            /* the next sequence */

#define IN_RING(s) (place[s] == PUBLISHED || place[s] == DRAINED)

#define REMOVED 0
#define PRESENT 1
#define LOST 2 /* with its node */
byte store[NODES];
bit drain_lock[NODES];
byte undrained[RINGS]; /* published records of the rank */
byte superseded[NODES * CELLS]; /* data of the node that are older are left out */

/* A file's slot in the store of a node. */
byte drained_before[SLOTS];
byte durable[SLOTS];
byte settled[SLOTS];
byte evicted_newest[SLOTS];
bit error[SLOTS];
bit repeats[SLOTS];           /* failed writes were repeated */
#ifdef OUTSIDE
bit alone; /* the rank outside of the communicator calls, through a handle of its own */
bit repeats_seen[2 * SLOTS];  /* by the collective calls through a handle */
#define REPEATS_SEEN(slot) repeats_seen[alone * SLOTS + (slot)]
#else
bit repeats_seen[SLOTS];
#define REPEATS_SEEN(slot) repeats_seen[slot]
#endif
bit repeats_unsettled[SLOTS]; /* what is not settled counts as not written */
bit deleted[FILES];

/* Of a rank. */
byte evictable_to[RINGS];    /* the guard has let these records go */
byte resolved_before[RINGS]; /* a sequence */
byte unresolved[RINGS];      /* a sequence: from there on the last rewrite has failed; 0: nowhere */
byte unresolved_before[RINGS]; /* and before this one */

/* The fsync of a slot: who holds its lock, and what it has noted. */
#define NOBODY 0
#define PROGRAM 1
#define DRAIN 2
#define DEAD 3
byte syncing[SLOTS];
byte sync_before[SLOTS];
byte promised_by[SLOTS]; /* `promised` of the sync */
bit sync_is_written[SLOTS];
bit sync_failed[SLOTS];

#if defined(FAULT_2) || defined(FAULT_10)
bit dirty[SLOTS];
#define NEEDS_SYNC(slot) dirty[slot]
#else
#define NEEDS_SYNC(slot) (drained_before[slot] > durable[slot] || repeats_unsettled[slot])
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
byte ordered[FILES];  /* older records were there when a sync of all nodes has succeeded */
byte cut[FILES];      /* the newest truncation that has returned */
bit contested[CELLS]; /* several nodes have written it since it was settled: without a sync it has no order after a kill */
bit excused[CELLS];   /* its newest data were lost with a node, before a sync at level file, or the job tells that */

bit left_byte_is_safe = 1;
bit evicted_byte_is_durable = 1;
bit synced_byte_is_durable = 1;
bit cut_byte_stays_away = 1;
bit read_is_newest = 1;
bit other_name_stays = 1;
#if NODES == 1 && FAILURES == 0 && WRITE_FAILURES == 0
#define NOTHING_FAILS
bit sync_succeeds = 1;
bit interrupted; /* a drain was killed in an fsync since the sync has begun */
#endif
#ifdef OPENS
byte closed[CELLS]; /* the newest byte before the last sync of all nodes, whatever that has told */
#endif

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

#ifdef RULE_EVICTED_NEWEST
#define AFTER_EVICTED(slot) 0
#else
#define AFTER_EVICTED(slot) (evicted_newest[slot] + 1)
#endif
/* repeated_from: after an error data from there on are written again. */
#define REPEATED_FROM(slot) (repeats_unsettled[slot] && MAX(settled[slot], AFTER_EVICTED(slot)) < durable[slot] -> \
    MAX(settled[slot], AFTER_EVICTED(slot)) : durable[slot])

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
    od;
    m = 0
}

/* The newest record of the cell that a retry writes, 0: none. */
inline find_repeated(node, cell, result) {
    find_cut(node, FILE(cell), i);
    result = 0;
    m = 1;
    do
    :: m <= RECORDS ->
        if
        :: place[m] == DRAINED && MAY_WRITE(m, node, cell) && AFTER_CUT(m, i) && IS_VALID(m) &&
            m >= REPEATED_FROM(SLOT(node, FILE(cell))) -> result = m
        :: else
        fi;
        m++
    :: else -> break
    od;
    i = 0; m = 0
}

/* fail, after an fsync: an error only if there is something to write again. */
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
    k = (file) * BYTES;
    do
    :: k < (file) * BYTES + BYTES ->
        find_repeated(node, k, v);
        if
#ifdef FAULT_12
        :: v && failed_before[SLOT(node, file)]
        :: v && !failed_before[SLOT(node, file)] ->
#else
        :: v ->
#endif
            error[SLOT(node, file)] = 1
        :: else
        fi;
        k++
    :: else -> break
    od;
#ifdef FAULT_12
    failed_before[SLOT(node, file)] = error[SLOT(node, file)] || failed_before[SLOT(node, file)];
#endif
    k = 0; v = 0
}

/* The owner of the right to sync was killed. */
inline abandon_sync(node, file) {
    syncing[SLOT(node, file)] = DEAD;
    sync_before[SLOT(node, file)] = 0;
    promised_by[SLOT(node, file)] = 0;
    sync_is_written[SLOT(node, file)] = 0;
    sync_failed[SLOT(node, file)] = 0
}

/* sync: takes the right to sync. */
#define MAY_TAKE_RIGHT(node, file) \
    (!drain_lock[node] && (syncing[SLOT(node, file)] == NOBODY || syncing[SLOT(node, file)] == DEAD))
inline take_right(node, file, who) {
    d_step {
#ifndef RULE_DEAD_SYNC
        if
        :: syncing[SLOT(node, file)] == DEAD -> note_failed_sync(node, file)
        :: else
        fi;
#endif
        syncing[SLOT(node, file)] = who
    }
}

/* note_interrupted_sync, before the program repeats failed writes: an fsync in which a drain was killed counts as failed,
 * so its data are among them. */
inline note_interrupted_sync(node, file) {
#ifndef RULE_INTERRUPTED_SYNC
    atomic { syncing[SLOT(node, file)] != DEAD || !drain_lock[node];
        if
        :: syncing[SLOT(node, file)] == DEAD ->
            d_step {
#ifndef RULE_INTERRUPTED_FAILED
                note_failed_sync(node, file);
#endif
                syncing[SLOT(node, file)] = NOBODY
            }
        :: else
        fi }
#else
    skip
#endif
}

/* sync: notes under the drain's lock what the next fsync covers. */
inline begin_sync(node, file) {
    d_step {
        if
        :: !promised_by[SLOT(node, file)] -> promised_by[SLOT(node, file)] = drained_before[SLOT(node, file)]
        :: else
        fi;
        oldest_published(node, file, sync_before[SLOT(node, file)]);
        if
        :: error[SLOT(node, file)] && durable[SLOT(node, file)] < sync_before[SLOT(node, file)] ->
            sync_before[SLOT(node, file)] = durable[SLOT(node, file)]
        :: else
        fi;
        sync_is_written[SLOT(node, file)] = !error[SLOT(node, file)];
#ifdef FAULT_2
        dirty[SLOT(node, file)] = 0;
#endif
        m = 0
    }
}

#ifdef RULE_SYNC_COVERS
#define ERROR_AFTER_SYNC(node, file) 0
#define IS_COVERED(node, file) true
#else
#define ERROR_AFTER_SYNC(node, file) error[SLOT(node, file)]
#define IS_COVERED(node, file) (durable[SLOT(node, file)] >= promised_by[SLOT(node, file)])
#endif
#ifdef RULE_REPEATS_COVERED
#define COVERS_REPEATS(node, file) sync_is_written[SLOT(node, file)]
#else
#define COVERS_REPEATS(node, file) (sync_is_written[SLOT(node, file)] && !error[SLOT(node, file)])
#endif
/* sync: notes the result under the drain's lock; gives the right back unless another fsync is needed. */
inline end_sync(node, file, succeeded) {
    d_step {
        b = sync_failed[SLOT(node, file)];
        if
        :: !b ->
            durable[SLOT(node, file)] = MAX(durable[SLOT(node, file)], sync_before[SLOT(node, file)]);
            if
            :: COVERS_REPEATS(node, file) -> repeats_unsettled[SLOT(node, file)] = 0
            :: else
            fi;
#ifdef FAULT_10
            dirty[SLOT(node, file)] = 0;
#endif
            b = ERROR_AFTER_SYNC(node, file)
        :: else ->
#ifdef FAULT_2
            dirty[SLOT(node, file)] = 1;
#endif
            skip
        fi;
        if
        :: b && !error[SLOT(node, file)] -> note_failed_sync(node, file)
        :: else
        fi;
        sync_before[SLOT(node, file)] = 0;
        sync_is_written[SLOT(node, file)] = 0;
        sync_failed[SLOT(node, file)] = 0;
        if
        :: b || IS_COVERED(node, file) ->
            syncing[SLOT(node, file)] = NOBODY;
            promised_by[SLOT(node, file)] = 0
        :: else
        fi;
        succeeded = succeeded && !b;
        b = 0
    }
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

/* retry: what is not durable counts as not written after an error, and is written again. */
inline retry(node, file) {
    k = (file) * BYTES;
    b = 0;
    do
    :: k < (file) * BYTES + BYTES ->
        d_step { find_repeated(node, k, v) }
        if
        :: v -> put(node, k, v); repeats[SLOT(node, file)] = NODES > 1
        :: v && write_failures > 0 -> write_failures--; b = 1; repeats[SLOT(node, file)] = NODES > 1
        :: !v
        fi;
        k++
    :: else -> break
    od;
    if
    :: repeats[SLOT(node, file)] ->
#ifndef RULE_REPEATS_COVERED
        sync_is_written[SLOT(node, file)] = 0; /* a running fsync may not cover it */
#endif
        repeats_seen[SLOT(node, file)] = 0;
#ifdef OUTSIDE
        repeats_seen[SLOTS + SLOT(node, file)] = 0
#endif
    :: else
    fi;
    error[SLOT(node, file)] = b;
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
    :: k < RINGS ->
        if
        :: NODE(k) == (node) && unresolved[k] && !killed -> result = 0
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
            !deleted[file] && MAY_TAKE_RIGHT(node, file) -> take_right(node, file, DRAIN); begin_sync(node, file) } \
            do \
            :: atomic { write_back(node, file) } \
                atomic { !drain_lock[node] -> end_sync(node, file, may); \
                    if \
                    :: syncing[SLOT(node, file)] != DRAIN -> may = 0; break \
                    :: else -> begin_sync(node, file) \
                    fi } \
            od

proctype Drain(byte node) {
    byte batch_end;
    bit may;
end_again:
    {
end_loop:
        do
        /* drain: the lock and drained_before, the writes, drained */
        :: atomic { store[node] == PRESENT && UNDRAINED(node) && !drain_lock[node] ->
            d_step {
                drain_lock[node] = 1;
                m = 1;
                do
                :: m <= RECORDS ->
                    if
                    :: place[m] == PUBLISHED && NODE(ring_of[m]) == node ->
                        batch_end = m;
#if defined(FAULT_2) || defined(FAULT_10)
                        dirty[SLOT(node, FILE(cell_of[m]))] = 1;
#endif
                        drained_before[SLOT(node, FILE(cell_of[m]))] =
                            MAX(drained_before[SLOT(node, FILE(cell_of[m]))], m + 1)
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
                        undrained[ring_of[m]]--
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
        :: atomic { store[node] == PRESENT && over && !UNDRAINED(node) && !drain_lock[node] ->
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
            :: syncing[SLOT(node, m)] == DRAIN ->
#ifdef NOTHING_FAILS
                interrupted = 1;
#endif
                abandon_sync(node, m)
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
    undrained[ring]++;
    m = 1;
    do
    :: m < clock ->
        if
        :: NODE(ring_of[m]) != NODE(ring) && !truncates[m] && cell_of[m] == (cell) &&
            m >= ordered[FILE(cell)] && !truncation -> contested[cell] = 1
        :: else
        fi;
        m++
    :: else -> break
    od;
    m = 0;
    clock++
}

/* supersede: the rank leaves out its unsettled bytes of which another node has newer ones in its store. The records of
 * that are behind the data, so they leave the ring after them; they count as drained at once. */
inline publish_superseded(ring, file) {
    d_step {
#ifndef FAULT_5
        m = 1;
        do
        :: m <= RECORDS ->
            if
            :: IN_RING(m) && ring_of[m] == (ring) && FILE(cell_of[m]) == (file) && !truncates[m] &&
                m >= settled[SLOT(NODE(ring), file)] ->
                v = m + 1;
                do
                :: v <= RECORDS ->
                    if
                    :: place[v] != NOWHERE && NODE(ring_of[v]) != NODE(ring) && cell_of[v] == cell_of[m] && !truncates[v] &&
                        v > superseded[NODE(ring) * CELLS + cell_of[m]] ->
                        superseded[NODE(ring) * CELLS + cell_of[m]] = v;
#if defined(FAULT_2) || defined(FAULT_10)
                        dirty[SLOT(NODE(ring), file)] = 1;
#endif
                        drained_before[SLOT(NODE(ring), file)] = MAX(drained_before[SLOT(NODE(ring), file)], v + 1)
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

#ifdef RULE_UNRESOLVED_HOLDS
#define HOLDS_BACK(rank, node) false
#else
#define HOLDS_BACK(rank, node) (NODE(rank) == (node) && unresolved[rank])
#endif

/* Progress::failed and Progress::unresolved: nobody waits without a limit. */
#if NODES > 1
#define FAILS (error[0] || error[SLOTS - 1])
#define MAY_GIVE_UP (FAILS || unresolved[0] || unresolved[1] || unresolved[RINGS - 1])
#else
#define FAILS (error[0])
#define MAY_GIVE_UP FAILS
#endif

/* Progress: the node has all older data in the file system, or (`on_medium`: Progress::synced) writes nothing older
 * again, and (`resolved`: Progress::durable) no older data of other nodes may be in the place of its own. */
inline progress(node, file, on_medium, resolved, result) {
    oldest_published(node, file, result);
    m = 0;
    do
    :: m < RINGS && (resolved) ->
        if
        :: HOLDS_BACK(m, node) && unresolved[m] < result -> result = unresolved[m]
        :: else
        fi;
        m++
    :: else -> break
    od;
    if
    :: (error[SLOT(node, file)] || ((on_medium) && NEEDS_SYNC(SLOT(node, file)))) && durable[SLOT(node, file)] < result ->
        result = durable[SLOT(node, file)]
    :: else
    fi;
    m = 0
}

/* wait_until_pushed before a rewrite, its condition: other nodes are beyond `sequence`, and this one has drained it.
 * Nodes whose ranks are `unresolved` wait for nobody else's rewrite: each writes its winning bytes by itself. */
inline are_beyond(self, file, sequence, lasting, result) {
    result = 1;
    k = 0;
    do
    :: k < NODES ->
        if
        :: k != self -> progress(k, file, lasting, false, v)
        :: else -> progress(k, file, false, false, v)
        fi;
        result = result && v > (sequence);
        k++
    :: else -> break
    od;
    k = 0; v = 0
}

/* What a rank writes again: nothing, its own newest bytes, or the newest bytes of all ranks over its own. */
#define NOTHING 0
#define OWN 1
#define OF_ALL 2
#ifdef RULE_BYTES_OF_ALL
#define WRITTEN_AGAIN(lasting) OWN
#else
#define WRITTEN_AGAIN(lasting) ((lasting) -> OF_ALL : OWN)
#endif

/* winning_pieces: the newest record of the cell, if it is the rank's, from `from` to before `end`, and has older data of
 * other ranks below, or (OF_ALL) if another rank has it in a ring over such a record of the rank; 0: none. */
inline find_winner(owner, cell, from, end, of_whom, result) {
    result = 0; j = 0;
    m = 1;
    do
    :: m < clock ->
        if
        :: place[m] != NOWHERE && !truncates[m] && cell_of[m] == (cell) && m > cut[FILE(cell)] ->
            if
            :: ring_of[m] != (owner) -> result = ((of_whom) == OF_ALL && IN_RING(m) -> m : 0); j = j | 1
            :: ring_of[m] == (owner) && place[m] == DRAINED && m >= (from) && m < (end) ->
                result = m;
                j = j | (m >= settled[SLOT(NODE(owner), FILE(cell))] -> 2 : 0)
            :: else -> result = 0
            fi
        :: else
        fi;
        m++
    :: else -> break
    od;
    result = (j & (ring_of[result] == (owner) -> 1 : 2) -> result : 0);
    m = 0; j = 0
}

/* The oldest and the newest of the rank's drained records from `from` to before `end`, and whether bytes of them are to
 * be written again. */
inline find_conflicts(rank, file, from, end, of_whom, oldest, newest, wins) {
    oldest = 0; newest = 0; wins = 0;
    m = 1;
    do
    :: m < clock ->
        if
        :: ring_of[m] == (rank) && place[m] == DRAINED && FILE(cell_of[m]) == (file) && m >= (from) && m < (end) ->
            oldest = (oldest -> oldest : m);
            newest = m
        :: else
        fi;
        m++
    :: else -> break
    od;
    k = (file) * BYTES;
    do
    :: k < (file) * BYTES + BYTES ->
        find_winner(rank, k, from, end, of_whom, v);
        wins = wins || v;
        k++
    :: else -> break
    od;
    k = 0; v = 0; m = 0
}

/* resolve: writes newest bytes again. */
inline rewrite(writing, file, from, end, of_whom, failed) {
    k = (file) * BYTES;
    do
    :: k < (file) * BYTES + BYTES ->
        d_step {
            find_winner(writing, k, from, end, of_whom, v);
            if
            :: v < settled[SLOT(NODE(writing), file)] -> v = 0
            :: else
            fi
        }
        if
#ifdef FAULT_6
        :: v && closing /* the descriptor is not held any more */
        :: v && !closing -> put(NODE(writing), k, v)
#else
        :: v -> put(NODE(writing), k, v)
#endif
        :: v && write_failures > 0 -> write_failures--; failed = 1
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
            b = k < durable[SLOT(NODE(ring), FILE(cell_of[k]))];
#endif
#ifdef RULE_CUT_STAYS
            b = b || truncates[k];
#endif
#if NODES > 1 && !defined(FAULT_4)
            b = b && k <= evictable_to[ring];
#endif
            b = b || deleted[FILE(cell_of[k])]
        :: else
        fi;
        if
        :: b ->
            place[k] = EVICTED;
            if
            :: !truncates[k] ->
#if NODES > 1
                evicted_newest[SLOT(NODE(ring), FILE(cell_of[k]))] = MAX(evicted_newest[SLOT(NODE(ring), FILE(cell_of[k]))], k);
#endif
                left[cell_of[k]] = MAX(left[cell_of[k]], k);
                evicted_byte_is_durable = medium[cell_of[k]] >= k || gone[FILE(cell_of[k])];
                m = k + 1;
                do
                :: m <= RECORDS ->
                    evicted_byte_is_durable = evicted_byte_is_durable || (IN_RING(m) && !truncates[m] &&
                        NODE(ring_of[m]) == NODE(ring) && cell_of[m] == cell_of[k]);
                    m++
                :: else -> break
                od;
                m = 0;
                assert(evicted_byte_is_durable)
            :: else
            fi
        :: else
        fi;
        b = 0; k = 0
    }
    check()
}

/* sync, by the program. Before, in the same step, the rank `author` writes bytes again (`of_whom`). */
inline sync(node, file, of_whom, author, from, end, succeeded) {
    atomic { MAY_TAKE_RIGHT(node, file) ->
        take_right(node, file, PROGRAM);
        if
        :: (of_whom) != NOTHING -> rewrite(author, file, from, end, of_whom, b)
        :: else
        fi;
        if
        :: b ->
            d_step { note_failed_sync(node, file); syncing[SLOT(node, file)] = NOBODY; succeeded = 0 }
        :: else -> begin_sync(node, file)
        fi;
        b = 0 }
    do
    :: atomic { syncing[SLOT(node, file)] != PROGRAM -> break }
    :: atomic { syncing[SLOT(node, file)] == PROGRAM -> write_back(node, file) }
        atomic { !drain_lock[node] -> end_sync(node, file, succeeded);
            if
            :: syncing[SLOT(node, file)] == PROGRAM -> begin_sync(node, file)
            :: else
            fi }
    od;
    skip
}

#if NODES > 1
#ifdef RULE_GUARD_DRAINED
#define GUARD_WAITS_DURABLY false
#else
#define GUARD_WAITS_DURABLY true
#endif
#ifdef RULE_UNRESOLVED
#define MARK_UNRESOLVED(ring, end) skip
#else
#define MARK_UNRESOLVED(ring, end) \
    unresolved[ring] = (wins && (!unresolved[ring] || oldest < unresolved[ring]) -> oldest : unresolved[ring]); \
    unresolved_before[ring] = (wins && unresolved_before[ring] < (end) -> (end) : unresolved_before[ring])
#endif

/* note_resolved: another attempt may have failed for more records. */
inline note_resolved(ring, end_record) {
    if
    :: unresolved_before[ring] <= (end_record) -> unresolved[ring] = 0; unresolved_before[ring] = 0
    :: else
    fi
}

#ifdef RULE_GUARD_LASTS
#define GUARD_END(node) clock
#else
/* What is durable now. Other data may be superseded before they leave. */
#define GUARD_END(node) durable[node]
#endif

/* prepare_eviction: lets the rank's durable records go, or gives up, or does nothing. */
inline guard(ring) {
    atomic {
        d_step {
            host = NODE(ring);
            end = GUARD_END(host);
            find_conflicts(ring, 0, 0, end, WRITTEN_AGAIN(true), oldest, newest, wins);
            are_beyond(host, 0, newest, GUARD_WAITS_DURABLY, pushed);
            if
            :: !wins -> evictable_to[ring] = newest; note_resolved(ring, end)
            :: wins && pushed -> MARK_UNRESOLVED(ring, end)
            :: else ->
                if
                :: FAILS -> MARK_UNRESOLVED(ring, end)
                :: else
                fi;
                wins = 0
            fi;
            oldest = 0; pushed = 0
        }
    }
    if
    :: wins ->
        ok = 1;
        sync(host, 0, WRITTEN_AGAIN(true), ring, 0, end, ok);
        d_step {
            if
            :: ok -> note_resolved(ring, end); evictable_to[ring] = newest
            :: else
            fi
        }
    :: else
    fi;
    d_step { ok = 0; wins = 0; newest = 0; end = 0; host = 0 }
}

/* resolve, in a collective call. Without an error it waits until the other nodes have drained or (`durably`) have it on
 * the medium. */
inline resolve(ring, until_durable, succeeded) {
    do
    :: atomic {
        d_step {
            host = NODE(ring);
            find_conflicts(ring, 0, resolved_before[ring], clock, WRITTEN_AGAIN(until_durable), oldest, newest, wins);
            if
            :: !wins -> pushed = 1; note_resolved(ring, clock)
            :: else ->
                are_beyond(host, 0, newest, until_durable, pushed)
            fi;
            newest = 0
        }
        if
        :: pushed || FAILS -> break
        :: else -> wins = 0; oldest = 0
        fi }
    od;
    skip;
    d_step {
        succeeded = succeeded && pushed;
#ifdef RULE_UNRESOLVED_WAIT
        wins = wins && (pushed || !(until_durable));
#endif
        if
        :: wins -> MARK_UNRESOLVED(ring, clock)
        :: else
        fi;
        wins = wins && (pushed || !(until_durable));
        oldest = 0; pushed = 0
    }
    if
    :: wins ->
        written = 1;
        sync(host, 0, WRITTEN_AGAIN(until_durable), ring, resolved_before[ring], clock, written);
        d_step {
            succeeded = succeeded && written;
            if
            :: written -> note_resolved(ring, clock)
            :: else
            fi;
            wins = 0;
            written = 0
        }
    :: else
    fi;
    d_step {
        host = 0;
        if
        :: succeeded -> resolved_before[ring] = clock
        :: else
        fi
    }
}

/* were_writes_repeated, as the ranks of the communicator see it. */
#define REPEATED(slot) (!REPEATS_SEEN(slot) && repeats[slot])
#ifdef OUTSIDE
#define RESTARTS (REPEATED(0) || (!alone && REPEATED(SLOTS - 1)))
#else
#define RESTARTS (REPEATED(0) || REPEATED(SLOTS - 1))
#endif
#define IS_RING_DRAINED(ring) (!undrained[ring])

/* flush: of the ranks from `first` to `last` that are in the communicator. */
inline flush(first, last, waits_durably) {
    ring = first;
    do
    :: ring <= (last) && IN_COMM(ring) ->
        publish_superseded(ring, 0);
        atomic { !drain_lock[NODE(ring)] -> ring++ }
    :: ring <= (last) && !IN_COMM(ring) -> ring++
    :: else -> break
    od;
    ring = first;
    do
    :: atomic { ring <= (last) && (!IN_COMM(ring) || IS_RING_DRAINED(ring)) && !drain_lock[NODE(ring)] ->
        /* The drain has repeated failed writes, or not. */
        ok = ok && !(IN_COMM(ring) && error[SLOT(NODE(ring), 0)]);
        ring++ }
    :: ring > (last) -> break
    od;
    skip;
    d_step {
        if
        :: RESTARTS ->
            ring = 0;
            do
            :: ring < RINGS -> resolved_before[ring] = (IN_COMM(ring) -> 0 : resolved_before[ring]); ring++
            :: else -> break
            od
        :: else
        fi;
        REPEATS_SEEN(0) = repeats[0];
        REPEATS_SEEN(SLOTS - 1) = repeats[SLOTS - 1];
        ring = first
    }
    do
    :: ring <= (last) && IN_COMM(ring) -> resolve(ring, waits_durably, ok); ring++
    :: ring <= (last) && !IN_COMM(ring) -> ring++
    :: else -> break
    od;
    ring = 0
}
#endif

#if NODES > 1
/* repeat_unsettled: what is not settled counts as not written. The job tells that data which are older than evicted
 * ones may be old in the file (`may_be_old`). */
inline repeat_unsettled(node) {
#ifndef RULE_REPEATS_UNSETTLED
    repeats_unsettled[node] = 1;
    error[node] = 1;
#endif
#ifndef RULE_MAY_BE_OLD
    m = 1;
    do
    :: m <= evicted_newest[node] ->
        if
        :: place[m] == DRAINED && NODE(ring_of[m]) == (node) && m >= settled[node] && m > left[cell_of[m]] ->
            excused[cell_of[m]] = 1
        :: else
        fi;
        m++
    :: else -> break
    od;
    m = 0
#endif
}
#endif

/* A sync of all ranks of the communicator (`node`: NODES) or of one node has succeeded. */
inline promise(file, node) {
    k = (file) * BYTES;
    do
    :: k < (file) * BYTES + BYTES ->
        m = 1;
        do
        :: m < clock ->
            if
            :: !truncates[m] && cell_of[m] == k && (((node) == NODES && IN_COMM(ring_of[m])) || NODE(ring_of[m]) == (node)) ->
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

/* truncate: the file is cut, and the ranks from `first` to `last` publish it. */
inline truncate(first, last, file) {
    d_step {
        ring = first;
        do
        :: ring <= (last) && clock <= RECORDS -> publish(ring, (file) * BYTES, 1); ring++
        :: else -> break
        od;
        ring = 0;
        cut[file] = clock - 1;
        k = (file) * BYTES;
        do
        :: k < (file) * BYTES + BYTES ->
            cached[k] = cut[file];
            medium[k] = cut[file];
            dirty_at[k] = 0;
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

#ifdef OPENS
inline note_closed(file) {
    m = 1;
    do
    :: m < clock ->
        if
        :: !truncates[m] && FILE(cell_of[m]) == (file) -> closed[cell_of[m]] = MAX(closed[cell_of[m]], m)
        :: else
        fi;
        m++
    :: else -> break
    od;
    m = 0
}

/* wait_for_other_nodes: an open by a process that knows no slots waits until all is durable, and then reads the file. Until
 * then, or without success, it does nothing. */
inline open_alone(file) {
    d_step {
        j = 1;
        k = 0;
        do
        :: k < NODES -> progress(k, file, true, true, v); j = j && v >= clock; k++
        :: else -> break
        od;
        k = (file) * BYTES;
        do
        :: k < (file) * BYTES + BYTES && j -> read_is_newest = read_is_newest && cached[k] >= closed[k]; k++
        :: else -> break
        od;
        assert(read_is_newest);
        j = 0; k = 0; v = 0
    }
}
#endif

#ifdef FAULT_7
#define MAY_BE_DIRECT true
#else
#define MAY_BE_DIRECT (!NEEDS_SYNC(0))
#endif

#if TRUNCATIONS > 0
#ifdef CUT_BY_ALL
#define CUTTERS RINGS
#else
#define CUTTERS 1
#endif
/* Whether all older data are drained and, unless all nodes get the record, durable. */
#if defined(CUT_BY_ALL) || defined(RULE_CUT_EVERYWHERE) || NODES == 1
#define CUT_WAITS_DURABLY false
#else
#define CUT_WAITS_DURABLY true
#endif
inline cuts_now(result) {
    result = 1;
    k = 0;
    do
    :: k < NODES ->
        progress(k, 0, CUT_WAITS_DURABLY, CUT_WAITS_DURABLY, v);
        result = result && v == clock && !drain_lock[k];
        k++
    :: else -> break
    od;
    k = 0; v = 0
}
#endif

#ifdef RULE_ONE_NODE_SYNC
#define ONE_NODE_SYNC_WAITS false
#else
#define ONE_NODE_SYNC_WAITS true
#endif
/* has_all_ranks: a rank outside of the communicator has not resolved its bytes. */
#if defined(OUTSIDE) && !defined(RULE_HAS_ALL_RANKS)
#define HAS_ALL_RANKS false
#else
#define HAS_ALL_RANKS true
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
    :: RINGS > 2 -> variable = 1 \
    :: RINGS > 1 -> variable = RINGS - 1 \
    fi
#define CHOOSE_CELL(variable) \
    if \
    :: variable = 0 \
    :: CELLS > 1 -> variable = CELLS - 1 \
    fi

#ifdef WRITERS
#define CHOOSE_WRITER(variable) variable = DIGIT(WRITERS, clock)
#else
#define CHOOSE_WRITER(variable) CHOOSE_RING(variable)
#endif
#ifdef EVICTOR
#define CHOOSE_EVICTOR(variable) variable = EVICTOR
#else
#define CHOOSE_EVICTOR(variable) CHOOSE_RING(variable)
#endif
#ifdef WRITTEN
#define CHOOSE_WRITTEN(variable) variable = DIGIT(WRITTEN, clock)
#else
#define CHOOSE_WRITTEN(variable) CHOOSE_CELL(variable)
#endif

#define MUST_PUBLISH (must_resolve || must_publish)
#define IS_DURABLE(node) (!UNDRAINED(node) && !error[node] && !NEEDS_SYNC(node))

#ifdef PROBE_RECOVERED
#define IS_PROBED (recovering && killed)
#else
#define IS_PROBED true
#endif

proctype Program() {
    bit ok;
    byte node, ring, cell;
#if NODES > 1
    byte oldest, newest, end, host;
    bit wins, pushed, written, must_resolve, must_publish;
#endif
    {
        do
        /* write */
        :: atomic { clock <= RECORDS ->
            CHOOSE_WRITER(ring);
            CHOOSE_WRITTEN(cell);
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
        :: atomic { clock > 1 -> CHOOSE_EVICTOR(ring); evict(ring); ring = 0 }
#if NODES > 1
        /* prepare_eviction */
        :: atomic { clock > 1 -> CHOOSE_EVICTOR(ring) } guard(ring); ring = 0
#endif
#endif
#if SYNCS > 0
        /* sync at level file, of all nodes */
        :: atomic { syncs > 0 && clock > 1 -> syncs--; ok = 1;
#ifdef NOTHING_FAILS
            interrupted = 0
#endif
            }
            do
            :: node < NODES -> note_interrupted_sync(node, 0); node++
            :: else -> break
            od;
            node = 0;
#if NODES > 1
            flush(0, RINGS - 1, !HAS_ALL_RANKS);
#else
            atomic { !UNDRAINED(0) && !drain_lock[0] ->
                if
                :: error[0] -> retry(0, 0)
                :: else
                fi;
                ok = !error[0] }
#endif
            do
            :: node < NODES -> sync(node, 0, NOTHING, 0, 0, 0, ok); node++
            :: else -> break
            od;
            atomic {
                node = 0;
#ifdef NOTHING_FAILS
                sync_succeeds = ok || interrupted;
                assert(sync_succeeds);
#endif
                d_step {
#ifdef OPENS
                    note_closed(0);
#endif
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
                        if
                        :: HAS_ALL_RANKS ->
                            settled[0] = durable[0]; settled[SLOTS - 1] = durable[SLOTS - 1]; ordered[0] = clock
                        :: else
                        fi
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
            flush(node, node, ONE_NODE_SYNC_WAITS);
            sync(node, 0, NOTHING, 0, 0, 0, ok);
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
        /* set_size(0), through a handle of one rank or (CUT_BY_ALL) of all */
        :: atomic { truncations > 0 && clock > 1 && clock + CUTTERS <= RECORDS + 1 -> truncations--; CHOOSE_RING(cell) }
#ifndef FAULT_8
            /* It fails if a file cannot be written. */
            do
            :: atomic {
                d_step { cuts_now(ok); i = MAY_GIVE_UP }
                if
                :: ok -> i = 0; break
                :: !ok && i -> i = 0; break
                :: !ok && !i
                fi }
            od;
#else
            ok = 1;
#endif
            atomic {
                if
#ifdef CUT_BY_ALL
                :: ok -> truncate(0, RINGS - 1, 0)
#else
                :: ok -> truncate(cell, cell, 0)
#endif
                :: else
                fi;
                ok = 0; cell = 0;
                check() }
#endif
#ifdef DIRECT
        /* enter_direct, leave_direct */
        :: d_step { !direct[0] && !UNDRAINED(0) && !drain_lock[0] && !error[0] && MAY_BE_DIRECT -> direct[0] = 1; valid_from = clock }
        :: d_step { direct[0] -> direct[0] = 0 }
#endif
#ifdef OPENS
        :: atomic { clock > 1 -> open_alone(0) }
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
        /* The end. The file is closed; what its close tells is not looked at. */
#if NODES > 1
#if SELF_SYNCS > 0
        do
        :: node < NODES -> flush(node, node, ONE_NODE_SYNC_WAITS); node++
        :: else -> break
        od;
        node = 0;
#elif defined(OUTSIDE)
        /* Both handles are closed, in any order. */
        if
        :: alone = 0
        :: alone = 1
        fi;
        do
        :: node < 2 -> flush(0, RINGS - 1, !HAS_ALL_RANKS); d_step { alone = !alone; node++ }
        :: else -> break
        od;
        skip;
        d_step { alone = 0; node = 0 };
#else
        flush(0, RINGS - 1, false);
#endif
        d_step { ok = 0; closing = 1 }
        /* MPI_Finalize */
        do
        :: node < NODES ->
            d_step {
                must_resolve = must_resolve || repeats[node];
                must_publish = must_publish || !IS_DURABLE(node);
                node++
            }
        :: else -> break
        od;
        skip;
        d_step {
            node = 0;
            do
            :: ring < RINGS -> must_resolve = must_resolve || unresolved[ring]; ring++
            :: else -> break
            od;
            ring = 0
        }
        do
        :: ring < RINGS && MUST_PUBLISH ->
            publish_superseded(ring, 0);
            atomic { !drain_lock[NODE(ring)] -> ring++ }
        :: else -> break
        od;
        ring = 0;
        atomic {
            must_publish = 0;
            d_step {
                k = 0;
                do
                :: k < NODES * CELLS -> must_publish = must_publish || (superseded[k] && !IS_DURABLE(k / CELLS)); k++
                :: else -> break
                od;
                k = 0
            }
        }
        /* What supersedes other data is durable, or a file cannot be written. */
        if
        :: atomic { must_publish && ((IS_DURABLE(0) && IS_DURABLE(1)) || MAY_GIVE_UP) -> must_publish = 0 }
        :: atomic { !must_publish -> skip }
        fi;
        do
        :: ring < RINGS && must_resolve ->
            d_step { resolved_before[ring] = 0; ok = 1 }
            resolve(ring, false, ok);
            d_step {
                if
                :: !ok -> repeat_unsettled(NODE(ring))
                :: else
                fi;
                unresolved[ring] = 0;
                unresolved_before[ring] = 0;
                ok = 0;
                ring++
            }
        :: else -> break
        od;
        skip;
        d_step { ring = 0; must_resolve = 0; contested[0] = 0; contested[CELLS - 1] = 0 }
#else
        closing = 1;
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
                :: syncing[m] == PROGRAM ->
                    syncing[m] = DEAD; sync_before[m] = 0; promised_by[m] = 0; sync_is_written[m] = 0; sync_failed[m] = 0
                :: else
                fi;
                m++
            :: else -> break
            od;
            m = 0
        :: else
        fi;
        ok = 0; node = 0; ring = 0; cell = 0
#if NODES > 1
        ; oldest = 0; newest = 0; end = 0; host = 0; wins = 0; pushed = 0; written = 0; must_resolve = 0; must_publish = 0
#endif
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
        do
        :: m < RINGS ->
            if
            :: NODE(m) == (node) -> undrained[m] = 0
            :: else
            fi;
            m++
        :: else -> break
        od;
        m = 0;
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
