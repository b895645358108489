// One endpoint of libfabric (reliable datagrams), with its completion queue and its addresses.
#pragma once

#ifdef ASSAY_LIBFABRIC

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/ofi/library.hpp"

namespace assay::ofi {

struct CloseFid {
    template <class T>
    void operator()(T* object) const {
        fi_close(&object->fid);
    }
};
template <class T>
using Owned = std::unique_ptr<T, CloseFid>;

// Memory for messages, registered with the provider if it requires that.
class Memory {
public:
    Memory() = default;
    Memory(fid_domain* domain, const fi_info& info, std::size_t bytes);
    std::byte* data() const { return data_.get(); }
    void* description() const { return region_ ? fi_mr_desc(region_.get()) : nullptr; }

private:
    struct Free {
        void operator()(std::byte* data) const { ::operator delete(data, std::align_val_t{4096}); }
    };
    std::unique_ptr<std::byte, Free> data_;
    Owned<fid_mr> region_;
};

// A buffer of one message. `context` comes first, because a completion has its address.
struct Buffer {
    fi_context2 context;
    std::byte* data = nullptr;
    void* description = nullptr;  // of its memory
    std::size_t bytes = 0;        // of the message; of a receive: its capacity
    void* owner = nullptr;        // set and used by the caller
    bool busy = false;            // the provider uses it
};
static_assert(offsetof(Buffer, context) == 0);

class Endpoint {
public:
    // Throws Error that names the provider and the call that failed.
    explicit Endpoint(Info info);
    ~Endpoint() { stop(); }
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;

    // Ends all traffic; after that the provider uses no buffer.
    void stop() { endpoint_.reset(); }
    std::string provider() const { return info_->fabric_attr->prov_name; }
    // Whether it reaches other hosts. The addresses of shared memory, which does not, are texts.
    bool reaches_other_hosts() const { return info_->addr_format != FI_ADDR_STR; }
    std::size_t max_message_bytes() const { return info_->ep_attr->max_msg_size; }
    std::size_t max_receives() const { return info_->rx_attr->size; }
    std::span<const unsigned char> address() const { return address_; }
    Memory allocate(std::size_t bytes) const { return {domain_.get(), *info_, bytes}; }

    // False: the provider does not understand the address.
    bool insert(std::span<const unsigned char> address, fi_addr_t& peer) const;
    void remove(fi_addr_t peer) const { fi_av_remove(addresses_.get(), &peer, 1, 0); }
    // Removes the shared memory that a killed peer has left behind.
    void remove_stale_memory(const std::string& address) const;
    // 0, -FI_EAGAIN or another error.
    long send(Buffer& buffer, fi_addr_t peer) const;
    long receive(Buffer& buffer) const;

    struct Completion {
        Buffer* buffer;
        std::size_t bytes;  // of a message that was received
        int error;          // 0: success
    };
    // Drives progress, and appends completed operations, at most a batch. Throws Error if the
    // endpoint has failed.
    void poll(std::vector<Completion>& completions) const;

private:
    Info info_;
    Owned<fid_fabric> fabric_;
    Owned<fid_domain> domain_;
    Owned<fid_av> addresses_;
    Owned<fid_cq> queue_;
    Owned<fid_ep> endpoint_;
    std::vector<unsigned char> address_;
};

}  // namespace assay::ofi

#endif
