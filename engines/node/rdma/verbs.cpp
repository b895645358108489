// The device, through libibverbs.
//
// Reliable connected queue pairs, connected by what the two sides tell each other over TCP.
// Time-outs, retries and the number of outstanding reads are perftest's, so that figures compare.
#include "node/rdma/endpoint.hpp"

#ifdef ASSAY_VERBS

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "core/error.hpp"
#include "node/rdma/library.hpp"
#include "node/rdma/ports.hpp"

namespace assay::rdma {
namespace {

// perftest 4.5's: 4.096 us * 2^14 = 67 ms until an acknowledgement is missed, 7 retries, endless
// ones of a receiver that is not ready (code 7), which is told to wait 0.64 ms (code 12). A device
// in software may have to wait that long for a processor: there it is a second.
constexpr std::uint8_t ack_timeout = 14, software_ack_timeout = 18, retries = 7,
                       not_ready_retries = 7, not_ready_timer = 12;
constexpr std::uint8_t hop_limit = 64;

// Freed by the library's function of its kind.
template <class T, class Free>
std::unique_ptr<T, Free> owned(T* object, Free free) {
    return std::unique_ptr<T, Free>(object, free);
}
template <class T>
using Owned = std::unique_ptr<T, int (*)(T*)>;

Owned<ibv_context> open(const PortName& name) {
    int count = 0;
    const auto list = owned(library().get_device_list(&count), library().free_device_list);
    for (int i = 0; list && i < count; ++i)
        if (library().get_device_name(list.get()[i]) == name.device) {
            Owned<ibv_context> context(library().open_device(list.get()[i]),
                                       library().close_device);
            if (!context)
                throw Error(fmt::format("cannot open {}: {}", name.device, std::strerror(errno)),
                            "may this user open /dev/infiniband/uverbs*?");
            return context;
        }
    throw Error("libibverbs does not know " + name.device,
                "is its provider installed (Debian: apt-get install ibverbs-providers)?");
}

std::string gid_text(const ibv_gid& gid) {
    std::string text;
    for (const std::uint8_t byte : gid.raw) text += fmt::format("{:02x}", byte);
    return text;
}

ibv_gid gid_of(const std::string& text) {
    ibv_gid gid{};
    if (text.size() != 2 * sizeof gid.raw)
        throw Error("defect: a GID of " + std::to_string(text.size()) + " characters");
    for (std::size_t i = 0; i < sizeof gid.raw; ++i)
        gid.raw[i] = static_cast<std::uint8_t>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
    return gid;
}

std::string locked_limit() {
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    return limit.rlim_cur == RLIM_INFINITY ? "unlimited"
                                           : fmt::format("{} KiB", limit.rlim_cur >> 10);
}

class Device final : public Endpoint {
public:
    Device(const PortName&, const Needs&);

    Json address() const override;
    void connect(const Json& other) override;
    std::byte* memory() override { return static_cast<std::byte*>(pages_.data()); }
    void post(int qp, Op op, std::size_t at, std::size_t there, std::size_t size,
              bool signalled) override;
    void post_receive(int qp, std::size_t at, std::size_t size) override;
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
    struct Place {
        std::uint64_t address = 0;
        std::uint32_t key = 0;
    };

    void choose_address();
    void register_memory();
    void make_queue_pairs();
    void to_init(ibv_qp*) const;
    void to_ready(const QueuePair&, const Json& other, std::size_t index) const;
    ibv_ah_attr path(const Json& other) const;
    [[noreturn]] void refuse(const std::string& what, const std::string& fix = {}) const;
    std::uintptr_t place() const { return reinterpret_cast<std::uintptr_t>(pages_.data()); }
    bool ethernet() const { return port_.link_layer == IBV_LINK_LAYER_ETHERNET; }

    PortName name_;
    Needs needs_;
    NodeMemory pages_;
    Owned<ibv_context> context_;
    ibv_device_attr limits_{};
    ibv_port_attr port_{};
    std::optional<Gid> gid_;
    ibv_gid raw_gid_{};
    Owned<ibv_pd> domain_;
    Owned<ibv_mr> region_;
    Owned<ibv_cq> queue_;
    std::vector<QueuePair> pairs_;
    ibv_mtu mtu_{};
    Place remote_;
};

Device::Device(const PortName& name, const Needs& needs)
    : name_(name),
      needs_(needs),
      pages_(needs.memory, needs.numa),
      context_(open(name)),
      domain_(nullptr, library().dealloc_pd),
      region_(nullptr, library().dereg_mr),
      queue_(nullptr, library().destroy_cq) {
    const auto port = static_cast<std::uint8_t>(name.port);
    // The exported function fills the part that it has always had, with all that is used here.
    if (library().query_device(context_.get(), &limits_) != 0 ||
        library().query_port(context_.get(), port,
                             reinterpret_cast<_compat_ibv_port_attr*>(&port_)) != 0)
        refuse("cannot be asked what it is");
    if (context_->device->transport_type == IBV_TRANSPORT_IWARP)
        refuse(
            "is an iWARP device, whose connections need a connection manager that is not used here",
            "measure it with perftest's -R");
    mtu_ = port_.active_mtu;
    if (needs.mtu != 0) {
        const int most = mtu();
        while (mtu_ > IBV_MTU_256 && mtu() > needs.mtu) mtu_ = static_cast<ibv_mtu>(mtu_ - 1);
        if (mtu() != needs.mtu)
            refuse(fmt::format("cannot use an MTU of {}", needs.mtu),
                   fmt::format("give a power of two from 256 to its active one, {}", most));
    }
    choose_address();
    domain_.reset(library().alloc_pd(context_.get()));
    if (!domain_) refuse("gives no protection domain");
    register_memory();
    make_queue_pairs();
}

void Device::refuse(const std::string& what, const std::string& fix) const {
    throw Error(fmt::format("{} {}", name_.text(), what), fix);
}

void Device::choose_address() {
    if (!ethernet() && port_.lid == 0)
        refuse("has no LID", "does a subnet manager run in this fabric?");
    if (!ethernet() && needs_.gid_index < 0) return;  // the LID is enough
    const std::vector<Gid> table = gids(name_);
    if (needs_.gid_index < 0) {
        gid_ = choose_gid(table);
    } else {
        const auto found = std::ranges::find(table, needs_.gid_index, &Gid::index);
        if (found != table.end()) gid_ = *found;
    }
    if (!gid_) {
        std::string known;
        for (const Gid& gid : table)
            known += fmt::format("{}{} is {} ({})", known.empty() ? "" : ", ", gid.index,
                                 gid.address, gid.type);
        refuse(
            needs_.gid_index < 0 ? "has no address"
                                 : fmt::format("has no GID of index {}", needs_.gid_index),
            known.empty() ? "give its network interface an IP address" : "choose one of: " + known);
    }
    if (library().query_gid(context_.get(), static_cast<std::uint8_t>(name_.port), gid_->index,
                            &raw_gid_) != 0)
        refuse(fmt::format("does not tell its GID of index {}", gid_->index));
}

void Device::register_memory() {
    std::memset(pages_.data(), 0, needs_.memory);
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    // Relaxed ordering, as perftest asks for: some hosts reach the link's rate only with it.
    if (library().reg_mr_iova2 != nullptr)
        region_.reset(
            library().reg_mr_iova2(domain_.get(), pages_.data(), needs_.memory, place(),
                                   static_cast<unsigned>(access) | IBV_ACCESS_RELAXED_ORDERING));
    else region_.reset((library().reg_mr)(domain_.get(), pages_.data(), needs_.memory, access));
    if (region_) return;
    const int why = errno;
    const std::string what = fmt::format("cannot register {} KiB of memory: {}",
                                         needs_.memory >> 10, std::strerror(why));
    if (why == ENOMEM)
        refuse(what,
               fmt::format(
                   "the limit of locked memory is {}; raise it: ulimit -l unlimited, or a line "
                   "'* - memlock unlimited' in /etc/security/limits.d",
                   locked_limit()));
    refuse(what);
}

void Device::make_queue_pairs() {
    const int entries = needs_.qps * (needs_.depth + needs_.receives);
    if (needs_.depth > limits_.max_qp_wr || needs_.receives > limits_.max_qp_wr)
        refuse(fmt::format("has no queue as deep as {}", needs_.depth),
               fmt::format("its limit is {} (--depth)", limits_.max_qp_wr));
    if (entries > limits_.max_cqe)
        refuse(fmt::format("has no completion queue of {} entries", entries),
               fmt::format("ask for {} at most (--qps, --depth)", limits_.max_cqe));
    queue_.reset(library().create_cq(context_.get(), entries, nullptr, nullptr, 0));
    if (!queue_)
        refuse(fmt::format("gives no completion queue of {} entries: {}", entries,
                           std::strerror(errno)),
               "ask for less (--qps, --depth)");
    std::random_device random;
    for (int i = 0; i < needs_.qps; ++i) {
        ibv_qp_init_attr wanted{};
        wanted.send_cq = wanted.recv_cq = queue_.get();
        wanted.qp_type = IBV_QPT_RC;
        wanted.cap.max_send_wr = static_cast<std::uint32_t>(needs_.depth);
        wanted.cap.max_recv_wr = static_cast<std::uint32_t>(needs_.receives);
        wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
        Owned<ibv_qp> qp(library().create_qp(domain_.get(), &wanted), library().destroy_qp);
        if (!qp) {
            const int why = errno;
            refuse(fmt::format("gives no queue pair {} of {}: {}", i + 1, needs_.qps,
                               std::strerror(why)),
                   why == ENOMEM ? fmt::format("ask for less (--qps, --depth), or raise the limit "
                                               "of locked memory ({}): ulimit -l unlimited",
                                               locked_limit())
                                 : "ask for less (--qps, --depth)");
        }
        to_init(qp.get());
        pairs_.push_back({std::move(qp), static_cast<std::uint32_t>(random()) & 0xffffff});
    }
}

void Device::to_init(ibv_qp* qp) const {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_INIT;
    to.pkey_index = 0;
    to.port_num = static_cast<std::uint8_t>(name_.port);
    to.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    if (const int why = library().modify_qp(
            qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        refuse(fmt::format("cannot initialise a queue pair: {}", std::strerror(why)));
}

Json Device::address() const {
    Json pairs = Json::array();
    for (const QueuePair& pair : pairs_) pairs.push_back({pair.qp->qp_num, pair.psn});
    return {{"port", name_.text()},
            {"link", ethernet() ? "Ethernet" : "InfiniBand"},
            {"lid", port_.lid},
            {"gid", gid_ ? gid_text(raw_gid_) : ""},
            {"gid_type", gid_ ? gid_->type : ""},
            {"mtu", static_cast<int>(mtu_)},
            {"reads", limits_.max_qp_rd_atom},
            {"key", region_->rkey},
            {"memory", place()},
            {"pairs", pairs}};
}

void Device::connect(const Json& other) {
    const std::string there = other.at("port");
    if (other.at("link") != (ethernet() ? "Ethernet" : "InfiniBand"))
        refuse(fmt::format("and the other side's {} are of different link layers", there),
               "choose two ports of one fabric");
    if (gid_.has_value() != !other.at("gid").get<std::string>().empty())
        refuse(fmt::format("and the other side's {} do not both use a GID", there),
               "give --gid-index on both sides, or on none");
    if (gid_ && other.at("gid_type") != gid_->type)
        refuse(fmt::format("uses {} and the other side's {} {}", gid_->type, there,
                           other.at("gid_type").get<std::string>()),
               "choose addresses of one type with --gid-index");
    if (other.at("pairs").size() != pairs_.size())
        throw Error("defect: the two sides differ in their queue pairs");
    mtu_ = std::min(mtu_, static_cast<ibv_mtu>(other.at("mtu").get<int>()));
    remote_ = {other.at("memory"), other.at("key")};
    for (std::size_t i = 0; i < pairs_.size(); ++i) to_ready(pairs_[i], other, i);
}

ibv_ah_attr Device::path(const Json& other) const {
    ibv_ah_attr to{};
    to.dlid = other.at("lid");
    to.sl = static_cast<std::uint8_t>(needs_.service_level);
    to.port_num = static_cast<std::uint8_t>(name_.port);
    if (gid_) {
        to.is_global = 1;
        to.grh.dgid = gid_of(other.at("gid"));
        to.grh.sgid_index = static_cast<std::uint8_t>(gid_->index);
        to.grh.hop_limit = hop_limit;
        to.grh.traffic_class = static_cast<std::uint8_t>(needs_.traffic_class);
    }
    return to;
}

// Through "ready to receive" to "ready to send". Ethernet resolves the other's address here.
void Device::to_ready(const QueuePair& pair, const Json& other, std::size_t index) const {
    const int reads =
        std::clamp(std::min(other.at("reads").get<int>(), limits_.max_qp_init_rd_atom), 1, 255);
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RTR;
    to.ah_attr = path(other);
    to.path_mtu = mtu_;
    to.dest_qp_num = other.at("pairs")[index][0];
    to.rq_psn = other.at("pairs")[index][1];
    to.max_dest_rd_atomic = static_cast<std::uint8_t>(std::clamp(limits_.max_qp_rd_atom, 1, 255));
    to.min_rnr_timer = not_ready_timer;
    int why =
        library().modify_qp(pair.qp.get(), &to,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (why == 0) {
        to = {};
        to.qp_state = IBV_QPS_RTS;
        to.timeout = in_software(context_->device->name) ? software_ack_timeout : ack_timeout;
        to.retry_cnt = retries;
        to.rnr_retry = not_ready_retries;
        to.sq_psn = pair.psn;
        to.max_rd_atomic = static_cast<std::uint8_t>(reads);
        why = library().modify_qp(pair.qp.get(), &to,
                                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    }
    if (why != 0)
        refuse(fmt::format("cannot be connected to {}: {}", other.at("port").get<std::string>(),
                           std::strerror(why)),
               ethernet() ? "do their addresses reach each other (ping)? another may be chosen "
                            "with --gid-index"
                          : "are both in one fabric?");
}

// wr_id: the queue pair and, above, whether it is a receive.
constexpr std::uint64_t receive_bit = 1ull << 32;

void Device::post(int qp, Op op, std::size_t at, std::size_t there, std::size_t size,
                  bool signalled) {
    ibv_sge piece{place() + at, static_cast<std::uint32_t>(size), region_->lkey};
    ibv_send_wr work{}, *bad = nullptr;
    work.wr_id = static_cast<std::uint64_t>(qp);
    work.sg_list = &piece;
    work.num_sge = 1;
    work.opcode = op == Op::write  ? IBV_WR_RDMA_WRITE
                  : op == Op::read ? IBV_WR_RDMA_READ
                                   : IBV_WR_SEND;
    work.send_flags = signalled ? IBV_SEND_SIGNALED : 0;
    work.wr.rdma.remote_addr = remote_.address + there;
    work.wr.rdma.rkey = remote_.key;
    if (const int why = ibv_post_send(pairs_[static_cast<std::size_t>(qp)].qp.get(), &work, &bad))
        refuse(fmt::format("takes no message: {}", std::strerror(why)));
}

void Device::post_receive(int qp, std::size_t at, std::size_t size) {
    ibv_sge piece{place() + at, static_cast<std::uint32_t>(size), region_->lkey};
    ibv_recv_wr work{}, *bad = nullptr;
    work.wr_id = static_cast<std::uint64_t>(qp) | receive_bit;
    work.sg_list = &piece;
    work.num_sge = 1;
    if (const int why = ibv_post_recv(pairs_[static_cast<std::size_t>(qp)].qp.get(), &work, &bad))
        refuse(fmt::format("takes no receive: {}", std::strerror(why)));
}

int Device::poll(std::span<Completion> completions) {
    ibv_wc found[16];
    const int wanted = static_cast<int>(std::min(completions.size(), std::size(found)));
    const int count = ibv_poll_cq(queue_.get(), wanted, found);
    if (count < 0) refuse("does not tell what is complete");
    for (int i = 0; i < count; ++i)
        completions[static_cast<std::size_t>(i)] = {
            static_cast<int>(found[i].wr_id & (receive_bit - 1)),
            (found[i].wr_id & receive_bit) != 0, found[i].status};
    return count;
}

}  // namespace

std::unique_ptr<Endpoint> open_endpoint(const PortName& name, const Needs& needs) {
    return std::make_unique<Device>(name, needs);
}

std::optional<std::string> no_verbs() {
    if (devices().empty())
        return "this host has no RDMA device (/sys/class/infiniband is empty or missing)";
    if (!library().missing.empty()) return library().missing;
    int count = 0;
    const auto list = owned(library().get_device_list(&count), library().free_device_list);
    if (!list) return fmt::format("libibverbs cannot list devices: {}", std::strerror(errno));
    if (count == 0)
        return "libibverbs finds none of this host's RDMA devices; is the provider installed "
               "(Debian: apt-get "
               "install ibverbs-providers) and the module ib_uverbs loaded?";
    return std::nullopt;
}

}  // namespace assay::rdma

#else  // without <infiniband/verbs.h>

#include "core/error.hpp"
#include "node/rdma/ports.hpp"

namespace assay::rdma {

std::unique_ptr<Endpoint> open_endpoint(const PortName& name, const Needs&) {
    throw Error("cannot open " + name.device + ": this build is without libibverbs", *no_verbs());
}

std::optional<std::string> no_verbs() {
    return "the engines were built without libibverbs (Debian: apt-get install libibverbs-dev, "
           "then make setup)";
}

}  // namespace assay::rdma

#endif
