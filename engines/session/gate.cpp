// The connections that have not authenticated yet (see gate.hpp).
#include "session/gate.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace assay::session {

bool Gate::add(int fd, std::string address) {
    if (callers_.size() >= max_callers_) refuse(callers_.begin());
    callers_.emplace_back(fd, std::move(address));
    const auto caller = std::prev(callers_.end());
    if (caller->advance(token_, purpose_) != Caller::State::refused) return true;
    refuse(caller);
    return false;
}

bool Gate::has(int fd) const {
    return std::any_of(callers_.begin(), callers_.end(),
                       [fd](const Caller& caller) { return caller.fd() == fd; });
}

Caller::State Gate::advance(int fd, int& socket, std::string& address) {
    const auto caller = std::find_if(callers_.begin(), callers_.end(),
                                     [fd](const Caller& entry) { return entry.fd() == fd; });
    if (caller == callers_.end()) return Caller::State::refused;
    const auto state = caller->advance(token_, purpose_);
    if (state == Caller::State::refused) refuse(caller);
    if (state == Caller::State::admitted) {
        address = caller->address();
        socket = caller->release();
        callers_.erase(caller);
    }
    return state;
}

void Gate::expire() {
    const long long oldest = monotonic_ms() - limit_ms_;
    while (!callers_.empty() && callers_.front().connected_at_ms() < oldest)
        refuse(callers_.begin());
}

void Gate::refuse(std::list<Caller>::iterator caller) {
    if (refused_++ == 0) first_refused_ = caller->address();
    callers_.erase(caller);
}

std::string peer_address(int fd) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    char text[NI_MAXHOST] = "?";
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0)
        getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, text, sizeof text, nullptr,
                    0, NI_NUMERICHOST);
    const std::string name = text;
    return name.compare(0, 7, "::ffff:") == 0 ? name.substr(7) : name;  // an IPv4-mapped address
}

}  // namespace assay::session
