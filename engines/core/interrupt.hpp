// Ctrl-C and a request to end (SIGINT, SIGTERM), for measurements that then report what they have.
#pragma once

namespace assay {

// From here on both only set a flag; system calls that wait return early (EINTR).
void catch_interrupts();
bool interrupted();

}  // namespace assay
