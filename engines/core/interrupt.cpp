// The signal handlers, which set one flag.
#include "core/interrupt.hpp"

#include <csignal>
#include <initializer_list>

namespace assay {
namespace {

volatile std::sig_atomic_t caught = 0;

}  // namespace

void catch_interrupts() {
    struct sigaction action{};
    action.sa_handler = [](int) { caught = 1; };
    for (const int number : {SIGINT, SIGTERM}) sigaction(number, &action, nullptr);
}

bool interrupted() { return caught != 0; }

}  // namespace assay
