// Interruption by SIGINT (Ctrl-C) and SIGTERM: a measurement then reports what it has so far.
#pragma once

namespace assay {

// Installs handlers that only set a flag; blocking system calls return early (EINTR).
void catch_interrupts();
// Whether one of the signals has arrived.
bool interrupted();

}  // namespace assay
