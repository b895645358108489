#!/bin/bash
# The first process of a guest, on the host's root under an overlay: sets up the requested hardware, runs the job,
# reports its exit code, and powers off.
#
# The kernel's command line has assay.job=FOLDER with `hardware` (the scripts to run, with arguments) and `job` (the
# command, with its environment and folder). Output goes to virtio ports, never to the console: 1 standard output, 2
# standard error, 3 the state ("up", then the exit code).
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
for word in $(cat /proc/cmdline); do case $word in assay.job=*) job=${word#assay.job=} ;; assay.modules=*) modules=${word#assay.modules=} ;; esac; done
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lock /run/shm /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null
mount -t tmpfs -o mode=1777 tmpfs /var/tmp
mkdir -p "/lib/modules/$(uname -r)"
mount --bind "$modules/lib/modules/$(uname -r)" "/lib/modules/$(uname -r)"
hostname guest
printf '127.0.0.1 localhost guest\n::1 localhost\n' >/run/hosts && mount --bind /run/hosts /etc/hosts
ip link set lo up
ulimit -l unlimited
port() { printf /dev/vport*p"$1"; }
# The host ends a guest whose ports do not appear. A job whose ports are missing would run unseen.
for number in 1 2 3; do until [ -c "$(port "$number")" ]; do sleep 0.1; done; done
out=$(port 1) err=$(port 2) state=$(port 3)
echo up >"$state"
code=125
if (. "$job/hardware") </dev/null >/run/hardware.log 2>&1; then
    bash "$job/job" </dev/null >"$out" 2>"$err"
    code=$?
else
    cat /run/hardware.log >"$err"
fi
sync
echo "$code" >"$state"
# The ports' buffers have to reach the host.
sleep 0.2
echo o >/proc/sysrq-trigger
sleep 10
