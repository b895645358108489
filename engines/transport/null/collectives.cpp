// Reductions, gather and broadcast of the null transport.
#include <algorithm>

#include "transport/null/fabric.hpp"

namespace assay::null {

void Fabric::begin_reduction(int rank, std::span<double> values, bool sum) {
    Lock lock(mutex_);
    check_aborted();
    count_operation(lock, rank);
    state(rank).reduction = values;
    Collective& c = current_collective(rank);
    if (c.begun++ == 0) {
        c.values.assign(values.begin(), values.end());
    } else {
        for (std::size_t i = 0; i < values.size(); ++i)
            c.values[i] = sum ? c.values[i] + values[i] : std::max(c.values[i], values[i]);
    }
    wake();
}

bool Fabric::test_reduction(int rank) {
    Lock lock(mutex_);
    check_aborted();
    Collective& c = current_collective(rank);
    if (simulated()) wait_until_or_idle(lock, rank, [&] { return c.begun == size(); });
    if (c.begun < size()) return false;
    std::ranges::copy(c.values, state(rank).reduction.begin());
    leave_collective(state(rank).collectives++);
    return true;
}

std::vector<std::string> Fabric::gather(int rank, const std::string& value) {
    Lock lock(mutex_);
    check_aborted();
    const std::uint64_t number = state(rank).collectives++;
    Collective& c = collectives_[number];
    c.texts.resize(states_.size());
    c.texts[static_cast<std::size_t>(rank)] = value;
    ++c.begun;
    wake();
    wait_until(lock, rank, [&] { return c.begun == size(); });
    std::vector<std::string> parts;
    if (rank == 0) parts = c.texts;
    leave_collective(number);
    return parts;
}

void Fabric::broadcast(int rank, std::string& value) {
    Lock lock(mutex_);
    check_aborted();
    const std::uint64_t number = state(rank).collectives++;
    Collective& c = collectives_[number];
    if (rank == 0) {
        c.texts = {value};
        wake();
    }
    wait_until(lock, rank, [&] { return !c.texts.empty(); });
    value = c.texts.front();
    leave_collective(number);
}

}  // namespace assay::null
