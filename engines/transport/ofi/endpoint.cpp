// Opens and drives an endpoint of libfabric (see endpoint.hpp).
#include "transport/ofi/endpoint.hpp"

#ifdef ASSAY_LIBFABRIC

#include <fmt/format.h>
#include <sys/mman.h>

#include <array>
#include <atomic>

#include "core/error.hpp"

namespace assay::ofi {
namespace {

constexpr std::size_t completion_batch = 64;

[[noreturn]] void fail(const fi_info& info, const char* call, long status) {
    throw Error(fmt::format("libfabric's {} does not work: {}: {}", info.fabric_attr->prov_name,
                            call, error_text(status)),
                "see 'fi_info -v', or choose another provider");
}

void check(const fi_info& info, const char* call, long status) {
    if (status != 0) fail(info, call, status);
}

}  // namespace

Memory::Memory(fid_domain* domain, const fi_info& info, std::size_t bytes)
    : data_(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{4096}))) {
    if (!(info.domain_attr->mr_mode & FI_MR_LOCAL)) return;
    static std::atomic<std::uint64_t> keys{0};
    fid_mr* region = nullptr;
    check(info, "fi_mr_reg",
          fi_mr_reg(domain, data_.get(), bytes, FI_SEND | FI_RECV, 0, ++keys, 0, &region, nullptr));
    region_.reset(region);
}

Endpoint::Endpoint(Info info) : info_(std::move(info)) {
    const auto open = [this](auto& owned, const char* call, auto&& function) {
        typename std::remove_reference_t<decltype(owned)>::pointer handle = nullptr;
        check(*info_, call, function(&handle));
        owned.reset(handle);
    };
    open(fabric_, "fi_fabric",
         [&](fid_fabric** f) { return library().fabric(info_->fabric_attr, f, nullptr); });
    open(domain_, "fi_domain",
         [&](fid_domain** d) { return fi_domain(fabric_.get(), info_.get(), d, nullptr); });
    fi_av_attr addresses{};
    addresses.type = info_->domain_attr->av_type;
    open(addresses_, "fi_av_open",
         [&](fid_av** a) { return fi_av_open(domain_.get(), &addresses, a, nullptr); });
    fi_cq_attr queue{};
    queue.format = FI_CQ_FORMAT_MSG;
    queue.wait_obj = FI_WAIT_NONE;
    queue.size = info_->tx_attr->size + info_->rx_attr->size;
    open(queue_, "fi_cq_open",
         [&](fid_cq** q) { return fi_cq_open(domain_.get(), &queue, q, nullptr); });
    open(endpoint_, "fi_endpoint",
         [&](fid_ep** e) { return fi_endpoint(domain_.get(), info_.get(), e, nullptr); });
    check(*info_, "fi_ep_bind", fi_ep_bind(endpoint_.get(), &addresses_->fid, 0));
    check(*info_, "fi_ep_bind", fi_ep_bind(endpoint_.get(), &queue_->fid, FI_TRANSMIT | FI_RECV));
    check(*info_, "fi_enable", fi_enable(endpoint_.get()));
    std::array<unsigned char, 512> name;
    std::size_t length = name.size();
    check(*info_, "fi_getname", fi_getname(&endpoint_->fid, name.data(), &length));
    address_.assign(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(length));
}

bool Endpoint::insert(std::span<const unsigned char> address, fi_addr_t& peer) const {
    return fi_av_insert(addresses_.get(), address.data(), 1, &peer, 0, nullptr) == 1;
}

void Endpoint::remove_stale_memory(const std::string& address) const {
    constexpr std::string_view scheme = "fi_shm://";
    if (reaches_other_hosts() || !address.starts_with(scheme)) return;
    const std::string name = address.substr(scheme.size());
    // Names of libfabric's shared memory are "pid:user:number" or a part of that. Others are kept.
    if (name.find_first_not_of("0123456789:") == std::string::npos)
        shm_unlink(("/" + name).c_str());
}

long Endpoint::send(Buffer& buffer, fi_addr_t peer) const {
    const long status = fi_send(endpoint_.get(), buffer.data, buffer.bytes, buffer.description,
                                peer, &buffer.context);
    buffer.busy = status == 0;
    return status;
}

long Endpoint::receive(Buffer& buffer) const {
    const long status = fi_recv(endpoint_.get(), buffer.data, buffer.bytes, buffer.description,
                                FI_ADDR_UNSPEC, &buffer.context);
    buffer.busy = status == 0;
    return status;
}

void Endpoint::poll(std::vector<Completion>& completions) const {
    std::array<fi_cq_msg_entry, completion_batch> entries;
    const ssize_t count = fi_cq_read(queue_.get(), entries.data(), entries.size());
    for (ssize_t i = 0; i < count; ++i) {
        const fi_cq_msg_entry& entry = entries[static_cast<std::size_t>(i)];
        completions.push_back({static_cast<Buffer*>(entry.op_context), entry.len, 0});
    }
    if (count == -FI_EAVAIL) {
        fi_cq_err_entry error{};
        if (fi_cq_readerr(queue_.get(), &error, 0) == 1 && error.op_context)
            completions.push_back(
                {static_cast<Buffer*>(error.op_context), 0, error.err ? error.err : FI_EIO});
    } else if (count < 0 && count != -FI_EAGAIN) {
        fail(*info_, "fi_cq_read", count);
    }
    for (const Completion& completion : completions) completion.buffer->busy = false;
}

}  // namespace assay::ofi

#endif
