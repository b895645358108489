#!/bin/sh
# enter NODE COMMAND [ARGUMENT...]: runs a command inside a node of the lab, in the same folder and environment.
#
# A copy is in the lab's state folder; its path names the lab. Plain sh, because launchers start it once for each
# host, and starting Python would take longer than the launch.
state=${0%/*}
ASSAY_LAB=${state##*/}
node=$1
shift
read -r pid 2>/dev/null <"$state/nodes/$node/pid"
# Process ids are reused; the process that holds the node has the node's folder as its working directory.
if ! [ "/proc/$pid/cwd" -ef "$state/nodes/$node" ]; then
    echo "assay: node '$node' of lab '$ASSAY_LAB' is not running; see 'assay lab status --lab $ASSAY_LAB'" >&2
    exit 2
fi

# A node has a private /tmp. The top-level folder of the machine's /tmp that a command needs (a checkout, a run's
# folder) is bind-mounted into every node at once, since launchers go from one node to the others.
share() {
    top=${1#/tmp/}
    top=${top%%/*}
    outer=$state/tmp/$top
    [ "/tmp/$top" -ef "/proc/$pid/root$outer" ] || return 0
    [ ! "/proc/$pid/root/tmp/$top" -ef "/proc/$pid/root$outer" ] || return 0
    for holder in "$state"/nodes/*/pid; do
        read -r other <"$holder"
        # shellcheck disable=SC2016 # expanded inside the node
        nsenter -t "$other" -m -- sh -c '
            if [ -d "$1" ]; then mkdir -p "$2"; else : >>"$2"; fi && mount --bind "$1" "$2"' \
            sh "$outer" "/tmp/$top"
    done
}
case $PWD in /tmp/?*) share "$PWD" ;; esac
case $1 in /tmp/?*) share "$1" ;; esac

export ASSAY_LAB
if [ -e "$state/slurm/slurm.conf" ]; then
    export SLURM_CONF="$state/slurm/slurm.conf"
fi
exec nsenter -t "$pid" -n -u -m -i --wdns="$PWD" -- "$@"
