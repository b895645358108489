# pmem.sh DEVDAX_BYTES: sets up persistent memory as /dev/dax0.0 of that size and the rest as a file system with
# direct access (DAX) on /mnt/pmem. Namespaces of an earlier guest are kept.
set -e
for module in nfit nd_pmem device_dax dax_pmem ext4; do modprobe $module; done
new=
if [ -z "$(ndctl list -N -m devdax 2>/dev/null)" ]; then
    new=yes
    ndctl disable-region all >/dev/null
    ndctl init-labels -f all >/dev/null
    ndctl enable-region all >/dev/null
    ndctl create-namespace -m devdax -r region0 -s "$1" -f >/dev/null
    ndctl create-namespace -m fsdax -r region0 -f >/dev/null
fi
for _ in $(seq 50); do
    device=$(ls /dev/pmem* 2>/dev/null | tail -1)
    [ -n "$device" ] && [ -e /dev/dax0.0 ] && break
    sleep 0.1
done
[ -z "$new" ] || mkfs.ext4 -q -F -b 4096 "$device"
mkdir -p /mnt/pmem
mount -o dax=always "$device" /mnt/pmem
