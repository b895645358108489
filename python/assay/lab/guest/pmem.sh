# pmem.sh DEVDAX_BYTES: the guest's persistent memory, as /dev/dax0.0 and, of what is left, as a file system
# with direct access on /mnt/pmem. What an earlier guest has made of it stays.
set -e
for module in nfit nd_pmem device_dax dax_pmem ext4; do modprobe $module; done
new=
if [ -z "$(ndctl list -N 2>/dev/null)" ]; then
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
