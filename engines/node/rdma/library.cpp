// Loads the functions of libibverbs.
#include "node/rdma/library.hpp"

#ifdef ASSAY_VERBS

#include <dlfcn.h>

namespace assay::rdma {

Library::Library() {
    void* const handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        missing =
            "libibverbs.so.1 is not installed (Debian: apt-get install libibverbs1 "
            "ibverbs-providers)";
        return;
    }
    const auto load = [&](auto& function, const char* symbol) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
        if (function == nullptr && missing.empty())
            missing = std::string("libibverbs.so.1 is too old: it lacks ") + symbol;
    };
#define ASSAY_VERB(verb) load(verb, "ibv_" #verb);
    ASSAY_VERBS_USED(ASSAY_VERB)
#undef ASSAY_VERB
    reg_mr_iova2 = reinterpret_cast<decltype(reg_mr_iova2)>(dlsym(handle, "ibv_reg_mr_iova2"));
}

const Library& library() {
    static const Library loaded;
    return loaded;
}

}  // namespace assay::rdma

#endif
