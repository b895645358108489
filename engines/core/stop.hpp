// Ctrl-C: a measurement that can say what it has so far asks here whether it should.
#pragma once

namespace assay {

// From now on SIGTERM and SIGINT are noted instead of ending the process. A second one ends it.
void heed_stop();
bool stop_requested();

}  // namespace assay
