// Loads libfabric and finds its providers.
#include "transport/ofi/library.hpp"

#ifdef ASSAY_LIBFABRIC

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/error.hpp"
#include "transport/ofi/lengths.hpp"

namespace assay::ofi {
namespace {

// The version of the interface that this code uses. Newer libraries support it.
constexpr std::uint32_t interface_version = FI_VERSION(1, 14);

// Loads the version of a symbol that the structures of this interface belong to.
template <class Function>
void load(void* handle, Function& function, const char* symbol, const char* version,
          std::string& missing) {
    void* result = dlvsym(handle, symbol, version);
    if (!result) result = dlsym(handle, symbol);
    function = reinterpret_cast<Function>(result);
    if (!result && missing.empty())
        missing = fmt::format("libfabric.so.1 is too old: it lacks {}", symbol);
}

Info make_hints(const std::string& provider) {
    Info hints(library().dupinfo(nullptr));
    if (!hints) throw Error("no memory for libfabric", "free memory on this host");
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    if (!provider.empty()) hints->fabric_attr->prov_name = strdup(provider.c_str());
    return hints;
}

// The list of matching providers, libfabric's favourite first; null if there is none. With address
// "" a provider chooses its own.
Info query(const std::string& provider, const std::string& address) {
    const Info hints = make_hints(provider);
    fi_info* result = nullptr;
    const int status =
        library().getinfo(interface_version, address.empty() ? nullptr : address.c_str(), nullptr,
                          address.empty() ? 0 : FI_SOURCE, hints.get(), &result);
    return Info(status == 0 ? result : nullptr);
}

bool has_ip_address(const fi_info& info) {
    return info.addr_format == FI_SOCKADDR || info.addr_format == FI_SOCKADDR_IN ||
           info.addr_format == FI_SOCKADDR_IN6 || info.addr_format == FI_SOCKADDR_IB;
}

std::string provider_name(const fi_info& info) { return info.fabric_attr->prov_name; }

}  // namespace

Library::Library() {
    // libfabric loads PSM, which catches SIGTERM and others to print its own stack, and calls
    // exit().
    setenv("IPATH_NO_BACKTRACE", "1", 0);
    // By default libfabric makes room for 256 peers in each completion queue of verbs, which is
    // more than some devices have (SoftRoCE: 32,767 entries).
    if (const char* const ranks = std::getenv("ASSAY_RANKS")) setenv("FI_UNIVERSE_SIZE", ranks, 0);
    void* const handle = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        missing = "libfabric.so.1 is not installed";
        return;
    }
    load(handle, getinfo, "fi_getinfo", "FABRIC_1.3", missing);
    load(handle, freeinfo, "fi_freeinfo", "FABRIC_1.3", missing);
    load(handle, dupinfo, "fi_dupinfo", "FABRIC_1.3", missing);
    load(handle, fabric, "fi_fabric", "FABRIC_1.1", missing);
    load(handle, strerror, "fi_strerror", "FABRIC_1.0", missing);
    load(handle, version, "fi_version", "FABRIC_1.0", missing);
}

const Library& library() {
    static const Library loaded;
    if (!loaded.missing.empty())
        throw Error(loaded.missing, "Debian: apt-get install libfabric1, on every host");
    return loaded;
}

std::string error_text(long status) {
    return library().strerror(static_cast<int>(status < 0 ? -status : status));
}

std::vector<std::string> providers() {
    std::vector<std::string> names;
    const Info all = query("", "");
    for (const fi_info* info = all.get(); info; info = info->next) {
        const std::string full = provider_name(*info), name = full.substr(0, full.find(';'));
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
    return names;
}

Info find_provider(const std::string& provider, const std::string& address) {
    // Over TCP, libfabric's layer of reliable datagrams (ofi_rxm) fetches a message above this
    // limit after it was announced. The request waits behind what the same connection carries back:
    // two ranks that send to each other have half of the rate. It is read when libfabric is loaded.
    if (provider == "tcp")
        setenv("FI_OFI_RXM_EAGER_LIMIT", std::to_string(Lengths::longest).c_str(), 0);
    Info result = query(provider, address);
    if (!result || !has_ip_address(*result))
        result = query(result && provider.empty() ? provider_name(*result) : provider, "");
    if (result) return result;
    const std::vector<std::string> available = providers();
    const std::string message =
        provider.empty() ? "libfabric has no provider of reliable datagrams (RDM) on this host"
                         : fmt::format(
                               "libfabric has no provider '{}' of reliable datagrams "
                               "(RDM) on this host",
                               provider);
    std::string choice;
    for (const std::string& name : available) choice += (choice.empty() ? "ofi:" : ", ofi:") + name;
    throw Error(message, available.empty() ? "see 'fi_info'" : "choose one of " + choice);
}

}  // namespace assay::ofi

#endif
