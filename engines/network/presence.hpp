// Notices other network measurements on this host, and is noticed by them: two at once share the
// wires, and both would report a part of what the network carries.
//
// Each holds a name among Unix sockets in the abstract namespace, which needs no file and no right,
// and ends with the process. It is that of a network namespace, as the wires are.
#pragma once

namespace assay::network {

class Presence {
public:
    Presence();
    ~Presence();
    Presence(const Presence&) = delete;
    Presence& operator=(const Presence&) = delete;

    // How many others were here when this one began, or have begun since then.
    int others();

private:
    int socket_ = -1, others_ = 0;
};

}  // namespace assay::network
