// The signals that a recorder passes on to the program that it runs.
//
// A signal that is ignored stays so, and the program inherits that: nohup and jobs in the
// background rely on it. Ctrl-C reaches the program directly, as it is in the same process group.
//
// A signal to all processes of a group or job arrives several times, from the kernel and from what
// has started the recorder: within a short time it is passed on once.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <utility>

#include "core/clock.hpp"

namespace assay::profile {

class ForwardedSignals {
public:
    ForwardedSignals() {
        for (std::size_t k = 0; k < numbers.size(); ++k) {
            sigaction(numbers[k], nullptr, &before_[k]);
            if (before_[k].sa_handler != SIG_IGN) std::signal(numbers[k], on_signal);
        }
    }
    // In the child, before exec: the actions that the program would have without a recorder.
    void restore() const {
        for (std::size_t k = 0; k < numbers.size(); ++k)
            sigaction(numbers[k], &before_[k], nullptr);
    }
    // Sends what has arrived since the last call.
    void pass_on(pid_t program) {
        for (std::size_t k = 0; k < numbers.size(); ++k) {
            if (std::exchange(arrived[numbers[k]], 0) == 0 || numbers[k] == SIGINT) continue;
            if (passed_on_[k] == 0 || now() - passed_on_[k] > repetition) kill(program, numbers[k]);
            passed_on_[k] = now();
        }
    }

private:
    static constexpr std::array numbers{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    static inline volatile sig_atomic_t arrived[NSIG] = {};
    static void on_signal(int number) { arrived[number] = 1; }

    static constexpr Nanoseconds repetition = 100'000'000;

    std::array<struct sigaction, numbers.size()> before_{};
    std::array<Nanoseconds, numbers.size()> passed_on_{};  // when it was last; 0: never
};

}  // namespace assay::profile
