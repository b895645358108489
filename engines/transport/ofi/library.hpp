// libfabric, loaded at run time, so that the engine also starts on hosts without it and can report
// what is missing.
#pragma once

#ifdef ASSAY_LIBFABRIC

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace assay::ofi {

// The functions that are loaded. All others are inline and call the provider directly.
struct Library {
    Library();
    std::string missing;  // the reason why it cannot be used; empty if it can

    decltype(&fi_getinfo) getinfo = nullptr;
    decltype(&fi_freeinfo) freeinfo = nullptr;
    decltype(&fi_dupinfo) dupinfo = nullptr;
    decltype(&fi_fabric) fabric = nullptr;
    decltype(&fi_strerror) strerror = nullptr;
    decltype(&fi_version) version = nullptr;
};

// Throws Error if libfabric is not installed.
const Library& library();

std::string error_text(long status);  // libfabric's text for a status

struct FreeInfo {
    void operator()(fi_info* info) const { library().freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// The providers of reliable datagrams (RDM) on this host, libfabric's favourite first, without the
// layers that libfabric puts on top: "tcp", "shm".
std::vector<std::string> providers();

// The endpoint that a provider offers at an IP address of this host; providers without IP addresses
// choose their own address. An empty provider means libfabric's favourite at that address. Throws
// Error that lists the available providers.
Info find_provider(const std::string& provider, const std::string& address);

}  // namespace assay::ofi

#endif
