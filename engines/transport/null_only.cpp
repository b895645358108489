// for_each_rank() for executables whose ranks are always threads of the null transport.
#include "transport/null.hpp"

namespace assay {

void for_each_rank(int&, char**&, const std::function<void(Transport&)>& body) {
    for_each_null_rank(body);
}

}  // namespace assay
