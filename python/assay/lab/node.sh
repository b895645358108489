#!/bin/sh
# node.sh LAB NODE STATE: becomes one node of a lab; started by unshare in namespaces of its own.
#
# It marks its namespaces, makes private what a real host has for itself, says "ready" and waits. Its
# standard input is held open by 'assay lab up' until the lab is complete: if that ends early, however
# badly, the input closes with no lab.json written and the node goes away by itself.
set -eu
lab=$1 node=$2 state=$3

# The mark by which 'assay lab down' finds every process of a lab, even with no state left. It is the
# NIS domain name, which nothing else uses: children and nested namespaces inherit it, and no process
# sheds it as it can its environment.
echo "assay-lab.$lab" >/proc/sys/kernel/domainname
echo "$node" >/proc/sys/kernel/hostname

for family in all default; do
    switch=/proc/sys/net/ipv6/conf/$family/disable_ipv6
    [ ! -e "$switch" ] || echo 1 >"$switch"
done
ip link set lo up

# The machine's /tmp stays reachable under the state folder: ./enter binds from it what commands need.
mount --bind /tmp "$state/tmp"
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t sysfs sysfs /sys # shows this network namespace's devices, not the machine's
mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup # Slurm wants something there; the machine's stay untouched
mount --bind "$state/hosts" /etc/hosts

cd "$state/nodes/$node" # by its working folder ./enter knows that this process is still the node
echo $$ >pid
echo ready
read -r _ || [ -e "$state/lab.json" ] || exit 1
exec sleep infinity </dev/null >/dev/null 2>&1
