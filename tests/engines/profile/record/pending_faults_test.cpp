// Page faults of processes without a recorder: what is kept, and what is counted as dropped.
#include "profile/record/pending_faults.hpp"

#include <doctest/doctest.h>

using namespace assay::heap;

namespace {

Fault fault_of(std::uint32_t pid, std::uint64_t ns) { return {pid, pid, ns, 0, 0, {}}; }

}  // namespace

TEST_CASE("faults are kept until their process has a recorder") {
    PendingFaults pending(4);
    for (const std::uint32_t pid : {1, 2, 1}) pending.add(fault_of(pid, 10));
    std::vector<std::uint32_t> taken;
    const auto take = [&](const Fault& fault) {
        if (fault.pid == 1) taken.push_back(fault.pid);
        return fault.pid == 1;
    };
    pending.pass(take);
    pending.pass(take);
    CHECK(taken == std::vector<std::uint32_t>{1, 1});
    CHECK(pending.dropped(1, 0) == 0);
    CHECK(pending.dropped(2, 0) == 0);
}

TEST_CASE("faults beyond the limit are dropped and counted for each process") {
    PendingFaults pending(4);
    for (std::uint64_t k = 0; k < 5; ++k) pending.add(fault_of(k == 2 ? 9 : 7, 100 + k));
    int passed = 0;
    pending.pass([&](const Fault&) { return ++passed > 0; });
    CHECK(passed == 0);
    CHECK(pending.dropped(7, 0) == 4);
    CHECK(pending.dropped(9, 0) == 1);
    CHECK(pending.dropped(7, 104) == 4);
    CHECK(pending.dropped(7, 105) == 0);  // of the program that the process ran before
    CHECK(pending.dropped(8, 0) == 0);
}
