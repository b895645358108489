#!/bin/bash
# nfs_in_guest.sh OUTPUT PROGRAMS PRELOAD: runs in a guest for test_in_guest.py. Starts the kernel's NFS
# server, mounts its export on two hosts, and runs MPI programs whose two ranks are on one host each.
#
# The second host is a process with network, host name and mounts of its own, so it is another client of the server,
# with caches and locks of its own. The kernel asks rpc.mountd who may mount what; here the answers are written into
# its caches beforehand, so no program of NFS is needed.
out=$1 programs=$2 preload=$3
server=10.201.0.1 second=10.201.0.2 export=/run/export
mkdir -p $export /mnt/nfs /mnt/hard /var/lib/nfs/v4recovery
mount -t tmpfs tmpfs $export

modprobe -a nfsd nfsv4 veth
mount -t nfsd nfsd /proc/fs/nfsd
echo "-2 -3 +4 +4.1 +4.2" >/proc/fs/nfsd/versions # version 3 needs rpcbind
ip netns add second
ip link add v0 type veth peer name v1 netns second
ip addr add $server/24 dev v0 && ip link set v0 up
ip -n second addr add $second/24 dev v1 && ip -n second link set v1 up && ip -n second link set lo up

start_server() {
    local expiry=$(($(date +%s) + 100000)) address
    for address in $server $second; do
        echo "nfsd $address $expiry hosts" >/proc/net/rpc/auth.unix.ip/channel
    done
    # linux/nfsd/export.h: NFSEXP_FSID, NFSEXP_NOSUBTREECHECK, NFSEXP_INSECURE_PORT; the root of the server is 0.
    echo "hosts $export $expiry $((0x2402)) 65534 65534 0" >/proc/net/rpc/nfsd.export/channel
    echo "hosts 1 \\x00000000 $expiry $export" >/proc/net/rpc/nfsd.fh/channel
    echo "tcp 2049" >/proc/fs/nfsd/portlist
    echo 4 >/proc/fs/nfsd/threads
    echo Y >/proc/fs/nfsd/v4_end_grace
}
stop_server() { echo 0 >/proc/fs/nfsd/threads; }
# The least of both: each restart would wait that long for clients that come back.
echo 10 >/proc/fs/nfsd/nfsv4leasetime
echo 10 >/proc/fs/nfsd/nfsv4gracetime
start_server

nfs="mount -i -t nfs4 -o vers=4.2,sec=sys,addr=$server,nosharecache"
soft=soft,timeo=10,retrans=1
$nfs,clientaddr=$server,$soft $server:/ /mnt/nfs || exit 1
$nfs,clientaddr=$server,hard,timeo=10 $server:/ /mnt/hard || exit 1
nsenter --net=/run/netns/second unshare -u -m sh -c "
    hostname second; umount /mnt/nfs; $nfs,clientaddr=$second,$soft $server:/ /mnt/nfs; exec sleep 1000" &
host=$!
for _ in $(seq 100); do
    nsenter -t $host -m grep -q "clientaddr=$second" /proc/mounts && break
    sleep 0.1
done

export ASSAY_IO_STORE=/dev/shm ASSAY_IO_SIZE=64M ASSAY_IO_REQUIRE=0
# run NAME ARGUMENTS: runs mpirun with these arguments; its output goes to NAME, its exit code and seconds to NAME.code.
run() {
    local name=$1 began
    shift
    began=$(date +%s)
    timeout 120 mpirun.mpich "$@" >"$out/$name" 2>&1
    echo $? $(($(date +%s) - began)) >"$out/$name.code"
}
# on_both NAME PROGRAM ARGUMENTS: the same with a rank on each host.
on_both() {
    local name=$1 program=$programs/$2
    shift 2
    run "$name" -n 1 env LD_PRELOAD="$preload" "$program" "$@" : \
        -n 1 nsenter -t $host -m env LD_PRELOAD="$preload" "$program" "$@"
}
locks() { awk '/^proc4ops/ { print $(2 + 1 + 12) }' /proc/net/rpc/nfsd; } # nfs4.h: OP_LOCK is 12

# The second host has the earlier version of the file in its cache, from an earlier opening.
cp "$out/before" $export/data
nsenter -t $host -m cmp /mnt/nfs/data "$out/before" >"$out/cached" 2>&1
on_both rewritten durability-mpich /mnt/nfs rewritten
cp /mnt/nfs/data "$out/rewritten.first"
nsenter -t $host -m cp /mnt/nfs/data "$out/rewritten.second"

before=$(locks)
on_both atomic mpiio-mpich /mnt/nfs atomic-mode
echo $(($(locks) - before)) >"$out/locks"

ASSAY_IO_STORE=/mnt/nfs run store -n 1 env LD_PRELOAD="$preload" "$programs/durability-mpich" "$out" closed

stop_server
on_both stopped durability-mpich /mnt/nfs closed
# The server comes back while a job waits for it.
(sleep 3; start_server) &
run restarted -n 1 env LD_PRELOAD="$preload" "$programs/durability-mpich" /mnt/hard closed
cp $export/data "$out/restarted.server"
ls $export >"$out/left"
kill $host
