#!/bin/sh
# node.sh LAB NODE STATE: becomes a node of a lab; unshare starts it in new namespaces.
#
# It marks its namespaces, mounts what a real host has separately, prints "ready" and waits. 'assay lab up' holds its
# standard input open until the lab is complete. If that command ends early, also by a crash, the input closes before
# lab.json is written, and the node ends.
set -eu
lab=$1 node=$2 state=$3

# The mark by which 'assay lab down' finds every process of a lab, also without the state folder. It is the NIS
# domain name, which nothing else uses: children and nested namespaces inherit it, and a process cannot drop it as it
# can its environment.
echo "assay-lab.$lab" >/proc/sys/kernel/domainname
echo "$node" >/proc/sys/kernel/hostname

for family in all default; do
    switch=/proc/sys/net/ipv6/conf/$family/disable_ipv6
    [ ! -e "$switch" ] || echo 1 >"$switch"
done
ip link set lo up

# The machine's /tmp stays reachable under the state folder, from which ./enter bind-mounts what commands need.
mount --bind /tmp "$state/tmp"
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t sysfs sysfs /sys # shows the devices of this network namespace
mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup # Slurm needs a mount here; the machine's is not changed
mount --bind "$state/hosts" /etc/hosts

cd "$state/nodes/$node" # ./enter identifies the node's process by its working directory
echo $$ >pid
echo ready
read -r _ || [ -e "$state/lab.json" ] || exit 1
exec sleep infinity </dev/null >/dev/null 2>&1
