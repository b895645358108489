# rdma.sh COUNT [RATE]: creates SoftRoCE devices rxe0, rxe1 ... whose traffic crosses veth links.
#
# The kernel's rdma_rxe serves the initial network namespace only, so every device is there, on a veth whose peer is
# in a namespace that routes between them. Policy routing keeps the kernel from delivering to local addresses
# directly; RATE limits both ends of each link.
set -e
count=$1 rate=$2
modprobe rdma_rxe
modprobe rdma_ucm
modprobe ib_uverbs
ip netns add switch
ip netns exec switch sysctl -qw net.ipv4.ip_forward=1
ip netns exec switch ip link set lo up
sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
sysctl -qw net.ipv4.conf.all.accept_local=1 net.ipv4.conf.default.accept_local=1
ip rule add pref 300 lookup local
for ((i = 0; i < count; i++)); do
    ip link add v$i mtu 4200 type veth peer name p$i mtu 4200 netns switch
    ip addr add 10.200.$i.1/24 dev v$i
    ip link set v$i up
    ip netns exec switch ip addr add 10.200.$i.254/24 dev p$i
    ip netns exec switch ip link set p$i up
    ip route add default via 10.200.$i.254 dev v$i table $((100 + i))
    ip rule add pref 10 iif v$i lookup local                          # from the link: deliver
    ip rule add pref 20 to 10.200.$i.1/32 from 10.200.$i.1 lookup local # to itself: deliver
    ip rule add pref 30 from 10.200.$i.1 to 10.200.0.0/16 lookup $((100 + i)) # to others: onto the link
    if [ -n "$rate" ]; then
        tc qdisc add dev v$i root tbf rate "$rate" burst 128kb limit 512kb
        ip netns exec switch tc qdisc add dev p$i root tbf rate "$rate" burst 128kb limit 512kb
    fi
done
ip rule del pref 0
# A link-local address is ready only after duplicate detection; the devices take their GIDs from it.
for ((i = 0; i < count; i++)); do
    for _ in $(seq 50); do
        ip -6 addr show dev v$i tentative | grep -q . || break
        sleep 0.1
    done
    rdma link add rxe$i type rxe netdev v$i
done
