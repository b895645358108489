// The signals that a recorder passes on to the program that it runs.
//
// A signal that is ignored stays so, and the program inherits that: nohup and jobs in the
// background rely on it. Ctrl-C reaches the program directly, as it is in the same process group.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <utility>

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
    static void pass_on(pid_t program) {
        for (const int number : numbers)
            if (std::exchange(arrived[number], 0) != 0 && number != SIGINT) kill(program, number);
    }

private:
    static constexpr std::array numbers{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    static inline volatile sig_atomic_t arrived[NSIG] = {};
    static void on_signal(int number) { arrived[number] = 1; }

    std::array<struct sigaction, numbers.size()> before_{};
};

}  // namespace assay::profile
