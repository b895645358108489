// Detects other network measurements on this host, and is detected by them: two at the same time
// share the wires, and both would report a part of what the network carries.
//
// Each measurement binds a Unix socket in the abstract namespace. That needs no file and no
// privilege, ends with the process, and belongs to the network namespace, as the wires do.
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
