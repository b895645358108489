// Tests of the session: signals.
#include "network/session.hpp"

#include <doctest/doctest.h>

#include <csignal>

#include "ranks.hpp"

using namespace assay;
using namespace assay::network;

TEST_CASE("a signal is seen by every session of the process, and by no session after it") {
    struct sigaction before{}, after{};
    sigaction(SIGTERM, nullptr, &before);
    on_ranks(
        2, {},
        [](Session& session) {
            if (session.rank() == 0) std::raise(SIGTERM);
            double barrier = 0;
            session.max({&barrier, 1});
            CHECK(Session::interrupted());
        },
        long_limits, Signals::planted);
    sigaction(SIGTERM, nullptr, &after);
    CHECK((after.sa_handler == before.sa_handler));
    on_ranks(2, {}, [](Session&) { CHECK_FALSE(Session::interrupted()); });
}
