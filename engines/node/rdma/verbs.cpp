// The endpoint of a real device, through libibverbs.
//
// It uses reliable connected queue pairs; the two sides exchange the connection data over TCP.
// Time-outs, retries and the number of outstanding reads are perftest's, so that results are
// comparable.
#include "node/rdma/control.hpp"
#include "node/rdma/endpoint.hpp"

#ifdef ASSAY_VERBS

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "core/error.hpp"
#include "core/text.hpp"
#include "node/rdma/library.hpp"
#include "node/rdma/ports.hpp"

namespace assay::rdma {
namespace {

// Values of perftest 4.5: acknowledgement time-out 4.096 us * 2^14 = 67 ms, 7 retries, endless
// retries if the receiver is not ready (code 7), after 0.64 ms (code 12). A software device may
// wait longer for a processor, so its time-out is 1 s.
constexpr std::uint8_t ack_timeout = 14, software_ack_timeout = 18, retries = 7,
                       not_ready_retries = 7, not_ready_timer = 12;
constexpr std::uint8_t hop_limit = 64;

// A pointer that the library's matching function frees.
template <class T, class Free>
std::unique_ptr<T, Free> make_owned(T* object, Free free) {
    return std::unique_ptr<T, Free>(object, free);
}
template <class T>
using Owned = std::unique_ptr<T, int (*)(T*)>;

Owned<ibv_context> open(const PortName& name) {
    int count = 0;
    const auto list = make_owned(library().get_device_list(&count), library().free_device_list);
    for (int i = 0; list && i < count; ++i)
        if (library().get_device_name(list.get()[i]) == name.device) {
            Owned<ibv_context> context(library().open_device(list.get()[i]),
                                       library().close_device);
            if (!context)
                throw Error(fmt::format("cannot open {}: {}", name.device, std::strerror(errno)),
                            "check this user's permission for /dev/infiniband/uverbs*");
            return context;
        }
    throw Error("libibverbs does not know " + name.device,
                "install its provider (Debian: apt-get install ibverbs-providers)");
}

constexpr std::size_t max_type = 20;  // characters of "IB/RoCE v1"
constexpr std::size_t max_gids = 64;  // of a port's table that are told to the other side

// Of "fe80:0000:0000:0000:0000:0000:0000:0001". Throws PeerError for another text.
ibv_gid parse_gid(const std::string& text) {
    ibv_gid gid{};
    if (inet_pton(AF_INET6, text.c_str(), gid.raw) != 1)
        throw PeerError("the other side sent a GID that cannot be read",
                        "use the same version of Assay on both sides");
    return gid;
}

std::vector<Gid> read_gids(const Json& list) {
    if (list.size() > max_gids)
        throw PeerError(fmt::format("the other side sent {} GIDs", list.size()),
                        "use the same version of Assay on both sides");
    std::vector<Gid> table;
    for (const Json& entry : list) {
        table.push_back(
            {static_cast<int>(whole_number(entry.at(0), 0xffff)), entry.at(1), entry.at(2), ""});
        parse_gid(table.back().address);
        table.back().type = printable(table.back().type).substr(0, max_type);
    }
    return table;
}

std::string locked_limit() {
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    return limit.rlim_cur == RLIM_INFINITY ? "unlimited"
                                           : fmt::format("{} KiB", limit.rlim_cur >> 10);
}

class Device final : public Endpoint {
public:
    Device(const PortName&, const EndpointOptions&);

    Json address() const override;
    void connect(const Json& other) override;
    std::byte* memory() override { return static_cast<std::byte*>(memory_.data()); }
    void post(int qp, Op op, std::size_t local, std::size_t remote, std::size_t size,
              bool signalled) override;
    void post_receive(int qp, std::size_t local, std::size_t size) override;
    int poll(std::span<Completion> completions) override;
    std::string status_text(int status) const override {
        return library().wc_status_str(static_cast<ibv_wc_status>(status));
    }
    int mtu() const override { return 128 << mtu_; }

private:
    struct QueuePair {
        Owned<ibv_qp> qp;
        std::uint32_t psn;
    };
    struct RemoteMemory {
        std::uint64_t address = 0;
        std::uint32_t key = 0;
    };

    void choose_address();
    void register_memory();
    void make_queue_pairs();
    void move_to_init(ibv_qp*) const;
    void move_to_ready(const QueuePair&, const Json& other, std::size_t index) const;
    ibv_ah_attr path_to(const Json& other) const;
    [[noreturn]] void fail(const std::string& what, const std::string& fix = {}) const;
    std::uintptr_t local_address() const {
        return reinterpret_cast<std::uintptr_t>(memory_.data());
    }
    bool ethernet() const { return port_.link_layer == IBV_LINK_LAYER_ETHERNET; }

    PortName name_;
    EndpointOptions options_;
    NodeMemory memory_;
    Owned<ibv_context> context_;
    ibv_device_attr limits_{};
    ibv_port_attr port_{};
    std::vector<Gid> gids_;  // those that may be used; none: the LID suffices
    std::optional<GidPair> chosen_;
    Owned<ibv_pd> domain_;
    Owned<ibv_mr> region_;
    Owned<ibv_cq> queue_;
    std::vector<QueuePair> pairs_;
    ibv_mtu mtu_{};
    RemoteMemory remote_;
};

Device::Device(const PortName& name, const EndpointOptions& options)
    : name_(name),
      options_(options),
      memory_(options.memory, options.numa),
      context_(open(name)),
      domain_(nullptr, library().dealloc_pd),
      region_(nullptr, library().dereg_mr),
      queue_(nullptr, library().destroy_cq) {
    const auto port = static_cast<std::uint8_t>(name.port);
    // The exported function fills only the old part of the struct, which has all that is used here.
    if (library().query_device(context_.get(), &limits_) != 0 ||
        library().query_port(context_.get(), port,
                             reinterpret_cast<_compat_ibv_port_attr*>(&port_)) != 0)
        fail("does not report its attributes");
    if (context_->device->transport_type == IBV_TRANSPORT_IWARP)
        fail("is an iWARP device, which needs a connection manager; that is not supported",
             "measure it with perftest's -R");
    mtu_ = port_.active_mtu;
    if (options.mtu != 0) {
        const int active_mtu = mtu();
        while (mtu_ > IBV_MTU_256 && mtu() > options.mtu) mtu_ = static_cast<ibv_mtu>(mtu_ - 1);
        if (mtu() != options.mtu)
            fail(fmt::format("cannot use an MTU of {}", options.mtu),
                 fmt::format("give a power of two from 256 to its active one, {}", active_mtu));
    }
    choose_address();
    domain_.reset(library().alloc_pd(context_.get()));
    if (!domain_) fail("provides no protection domain");
    register_memory();
    make_queue_pairs();
}

void Device::fail(const std::string& what, const std::string& fix) const {
    throw Error(fmt::format("{} {}", name_.text(), what), fix);
}

void Device::choose_address() {
    if (!ethernet() && port_.lid == 0)
        fail("has no LID", "check that a subnet manager runs in this fabric");
    if (!ethernet() && options_.gid_index < 0) return;  // the LID suffices
    const std::vector<Gid> table = gids(name_);
    for (const Gid& gid : table)
        if (gids_.size() < max_gids && (options_.gid_index < 0 || gid.index == options_.gid_index))
            gids_.push_back(gid);
    if (gids_.empty())
        fail(options_.gid_index < 0 ? "has no address"
                                    : fmt::format("has no GID of index {}", options_.gid_index),
             table.empty() ? "give its network interface an IP address"
                           : "choose one of: " + describe_gids(table));
}

void Device::register_memory() {
    std::memset(memory_.data(), 0, options_.memory);
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    // With relaxed ordering, as perftest: some hosts need it to reach the link's rate.
    if (library().reg_mr_iova2 != nullptr)
        region_.reset(
            library().reg_mr_iova2(domain_.get(), memory_.data(), options_.memory, local_address(),
                                   static_cast<unsigned>(access) | IBV_ACCESS_RELAXED_ORDERING));
    else region_.reset((library().reg_mr)(domain_.get(), memory_.data(), options_.memory, access));
    if (region_) return;
    const int error = errno;
    const std::string what = fmt::format("cannot register {} KiB of memory: {}",
                                         options_.memory >> 10, std::strerror(error));
    if (error == ENOMEM)
        fail(fmt::format("{}; the limit on locked memory is {}", what, locked_limit()),
             "raise it: ulimit -l unlimited, or a line '* - memlock unlimited' in "
             "/etc/security/limits.d");
    fail(what);
}

void Device::make_queue_pairs() {
    const int entries = options_.qps * (options_.depth + options_.receives);
    if (options_.depth > limits_.max_qp_wr || options_.receives > limits_.max_qp_wr)
        fail(fmt::format("has no queue as deep as {}", options_.depth),
             fmt::format("its limit is {} (--depth)", limits_.max_qp_wr));
    if (entries > limits_.max_cqe)
        fail(fmt::format("has no completion queue of {} entries", entries),
             fmt::format("ask for {} at most (--qps, --depth)", limits_.max_cqe));
    queue_.reset(library().create_cq(context_.get(), entries, nullptr, nullptr, 0));
    if (!queue_)
        fail(fmt::format("provides no completion queue of {} entries: {}", entries,
                         std::strerror(errno)),
             "ask for less (--qps, --depth)");
    std::random_device random;
    for (int i = 0; i < options_.qps; ++i) {
        ibv_qp_init_attr requested{};
        requested.send_cq = requested.recv_cq = queue_.get();
        requested.qp_type = IBV_QPT_RC;
        requested.cap.max_send_wr = static_cast<std::uint32_t>(options_.depth);
        requested.cap.max_recv_wr = static_cast<std::uint32_t>(options_.receives);
        requested.cap.max_send_sge = requested.cap.max_recv_sge = 1;
        Owned<ibv_qp> qp(library().create_qp(domain_.get(), &requested), library().destroy_qp);
        if (!qp) {
            const int error = errno;
            fail(fmt::format("provides no queue pair {} of {}: {}", i + 1, options_.qps,
                             std::strerror(error)),
                 error == ENOMEM ? fmt::format("ask for less (--qps, --depth), or raise the limit "
                                               "on locked memory ({}): ulimit -l unlimited",
                                               locked_limit())
                                 : "ask for less (--qps, --depth)");
        }
        move_to_init(qp.get());
        pairs_.push_back({std::move(qp), static_cast<std::uint32_t>(random()) & 0xffffff});
    }
}

void Device::move_to_init(ibv_qp* qp) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.pkey_index = 0;
    attributes.port_num = static_cast<std::uint8_t>(name_.port);
    attributes.qp_access_flags =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    if (const int error = library().modify_qp(
            qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        fail(fmt::format("cannot initialise a queue pair: {}", std::strerror(error)));
}

Json Device::address() const {
    Json pairs = Json::array();
    for (const QueuePair& pair : pairs_) pairs.push_back({pair.qp->qp_num, pair.psn});
    Json table = Json::array();
    for (const Gid& gid : gids_) table.push_back({gid.index, gid.address, gid.type});
    return {{"port", name_.text()},
            {"link", ethernet() ? "Ethernet" : "InfiniBand"},
            {"lid", port_.lid},
            {"gids", table},
            {"mtu", static_cast<int>(mtu_)},
            {"reads", limits_.max_qp_rd_atom},
            {"key", region_->rkey},
            {"memory", local_address()},
            {"pairs", pairs}};
}

void Device::connect(const Json& other) {
    const std::string remote = other.at("port");
    if (other.at("link") != (ethernet() ? "Ethernet" : "InfiniBand"))
        fail(fmt::format("and the other side's {} have different link layers", remote),
             "choose two ports of the same fabric");
    const std::vector<Gid> remote_gids = read_gids(other.at("gids"));
    if (gids_.empty() != remote_gids.empty())
        fail(fmt::format("and the other side's {} do not both use a GID", remote),
             "give --gid-index on both sides, or on none");
    chosen_ = choose_gids(gids_, remote_gids);
    if (!gids_.empty() && !chosen_)
        fail(fmt::format("and the other side's {} have no GIDs of one type and kind of address: "
                         "here {}; there {}",
                         remote, describe_gids(gids_), describe_gids(remote_gids)),
             "give both interfaces an IPv4 address, or set one type on both (cma_roce_mode)");
    if (other.at("pairs").size() != pairs_.size())
        throw PeerError(
            fmt::format("the other side's {} has another number of queue pairs", remote),
            "use the same version of Assay on both sides");
    mtu_ = std::clamp(static_cast<ibv_mtu>(whole_number(other.at("mtu"), IBV_MTU_4096)),
                      IBV_MTU_256, mtu_);
    remote_ = {whole_number(other.at("memory"), ~std::uint64_t{0}),
               static_cast<std::uint32_t>(whole_number(other.at("key"), ~std::uint32_t{0}))};
    for (std::size_t i = 0; i < pairs_.size(); ++i) move_to_ready(pairs_[i], other, i);
}

ibv_ah_attr Device::path_to(const Json& other) const {
    ibv_ah_attr attributes{};
    attributes.dlid = static_cast<std::uint16_t>(whole_number(other.at("lid"), 0xffff));
    attributes.sl = static_cast<std::uint8_t>(options_.service_level);
    attributes.port_num = static_cast<std::uint8_t>(name_.port);
    if (chosen_) {
        attributes.is_global = 1;
        attributes.grh.dgid = parse_gid(chosen_->other.address);
        attributes.grh.sgid_index = static_cast<std::uint8_t>(chosen_->own.index);
        attributes.grh.hop_limit = hop_limit;
        attributes.grh.traffic_class = static_cast<std::uint8_t>(options_.traffic_class);
    }
    return attributes;
}

// Moves the queue pair to "ready to receive" and "ready to send". Over Ethernet, this resolves the
// peer's address.
void Device::move_to_ready(const QueuePair& pair, const Json& other, std::size_t index) const {
    const int max_reads = std::clamp(limits_.max_qp_init_rd_atom, 1, 255);
    const int reads =
        std::clamp(static_cast<int>(whole_number(other.at("reads"), 1 << 16)), 1, max_reads);
    const Json& numbers = other.at("pairs").at(index);
    constexpr std::uint64_t max_24_bit = 0xffffff;  // queue pairs and sequences have 24 bits
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.ah_attr = path_to(other);
    attributes.path_mtu = mtu_;
    attributes.dest_qp_num = static_cast<std::uint32_t>(whole_number(numbers.at(0), max_24_bit));
    attributes.rq_psn = static_cast<std::uint32_t>(whole_number(numbers.at(1), max_24_bit));
    attributes.max_dest_rd_atomic =
        static_cast<std::uint8_t>(std::clamp(limits_.max_qp_rd_atom, 1, 255));
    attributes.min_rnr_timer = not_ready_timer;
    int error =
        library().modify_qp(pair.qp.get(), &attributes,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error == 0) {
        attributes = {};
        attributes.qp_state = IBV_QPS_RTS;
        attributes.timeout =
            is_software_device(context_->device->name) ? software_ack_timeout : ack_timeout;
        attributes.retry_cnt = retries;
        attributes.rnr_retry = not_ready_retries;
        attributes.sq_psn = pair.psn;
        attributes.max_rd_atomic = static_cast<std::uint8_t>(reads);
        error = library().modify_qp(pair.qp.get(), &attributes,
                                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                        IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    }
    if (error != 0)
        fail(fmt::format("cannot be connected to {}: {}", other.at("port").get<std::string>(),
                         std::strerror(error)),
             ethernet() ? "check that their addresses reach each other (ping), or choose others "
                          "with --gid-index"
                        : "check that both are in the same fabric");
}

// wr_id holds the queue pair, and this bit for a receive.
constexpr std::uint64_t receive_bit = 1ull << 32;

void Device::post(int qp, Op op, std::size_t local, std::size_t remote, std::size_t size,
                  bool signalled) {
    ibv_sge piece{local_address() + local, static_cast<std::uint32_t>(size), region_->lkey};
    ibv_send_wr work{}, *bad = nullptr;
    work.wr_id = static_cast<std::uint64_t>(qp);
    work.sg_list = &piece;
    work.num_sge = 1;
    work.opcode = op == Op::write  ? IBV_WR_RDMA_WRITE
                  : op == Op::read ? IBV_WR_RDMA_READ
                                   : IBV_WR_SEND;
    work.send_flags = signalled ? IBV_SEND_SIGNALED : 0;
    work.wr.rdma.remote_addr = remote_.address + remote;
    work.wr.rdma.rkey = remote_.key;
    if (const int error = ibv_post_send(pairs_[static_cast<std::size_t>(qp)].qp.get(), &work, &bad))
        fail(fmt::format("does not accept a message: {}", std::strerror(error)));
}

void Device::post_receive(int qp, std::size_t local, std::size_t size) {
    ibv_sge piece{local_address() + local, static_cast<std::uint32_t>(size), region_->lkey};
    ibv_recv_wr work{}, *bad = nullptr;
    work.wr_id = static_cast<std::uint64_t>(qp) | receive_bit;
    work.sg_list = &piece;
    work.num_sge = 1;
    if (const int error = ibv_post_recv(pairs_[static_cast<std::size_t>(qp)].qp.get(), &work, &bad))
        fail(fmt::format("does not accept a receive: {}", std::strerror(error)));
}

int Device::poll(std::span<Completion> completions) {
    ibv_wc entries[16];
    const int requested = static_cast<int>(std::min(completions.size(), std::size(entries)));
    const int count = ibv_poll_cq(queue_.get(), requested, entries);
    if (count < 0) fail("does not report completions");
    for (int i = 0; i < count; ++i)
        completions[static_cast<std::size_t>(i)] = {
            static_cast<int>(entries[i].wr_id & (receive_bit - 1)),
            (entries[i].wr_id & receive_bit) != 0, entries[i].status};
    return count;
}

}  // namespace

std::unique_ptr<Endpoint> open_endpoint(const PortName& name, const EndpointOptions& options) {
    return std::make_unique<Device>(name, options);
}

std::optional<std::string> no_verbs() {
    if (devices().empty())
        return "this host has no RDMA device (/sys/class/infiniband is empty or missing)";
    if (!library().missing.empty()) return library().missing;
    int count = 0;
    const auto list = make_owned(library().get_device_list(&count), library().free_device_list);
    if (!list) return fmt::format("libibverbs cannot list devices: {}", std::strerror(errno));
    if (count == 0)
        return "libibverbs finds none of this host's RDMA devices: check that the provider is "
               "installed "
               "(Debian: apt-get install ibverbs-providers) and the module ib_uverbs is loaded";
    return std::nullopt;
}

}  // namespace assay::rdma

#else  // without <infiniband/verbs.h>

#include "core/error.hpp"
#include "node/rdma/ports.hpp"

namespace assay::rdma {

std::unique_ptr<Endpoint> open_endpoint(const PortName& name, const EndpointOptions&) {
    throw Error("cannot open " + name.device + ": this build is without libibverbs", *no_verbs());
}

std::optional<std::string> no_verbs() {
    return "the engines were built without libibverbs (Debian: apt-get install libibverbs-dev, "
           "then make setup)";
}

}  // namespace assay::rdma

#endif
