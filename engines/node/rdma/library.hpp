// libibverbs, loaded at run time, so that the engine also starts on hosts without it and can report
// why RDMA is waived.
#pragma once

#ifdef ASSAY_VERBS

#include <infiniband/verbs.h>

#include <string>

namespace assay::rdma {

// The functions that are used, without the prefix ibv_. Posting and polling are inline functions,
// which call the provider directly.
#define ASSAY_VERBS_USED(each)                                                                 \
    each(get_device_list) each(free_device_list) each(get_device_name) each(open_device)       \
        each(close_device) each(query_device) each(query_port) each(alloc_pd) each(dealloc_pd) \
            each(reg_mr) each(dereg_mr) each(create_cq) each(destroy_cq) each(create_qp)       \
                each(modify_qp) each(destroy_qp) each(wc_status_str)

struct Library {
    Library();
    std::string missing;  // the reason why it cannot be used; empty if it can

#define ASSAY_VERB(verb) decltype(&ibv_##verb) verb = nullptr;
    ASSAY_VERBS_USED(ASSAY_VERB)
#undef ASSAY_VERB
    // Since rdma-core 28, null before. Only relaxed ordering needs it.
    decltype(&ibv_reg_mr_iova2) reg_mr_iova2 = nullptr;
};

const Library& library();

}  // namespace assay::rdma

#endif
