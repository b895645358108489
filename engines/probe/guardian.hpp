// The guardian process of a rank, which reports why the rank died.
//
// A rank that is killed (out of memory, a crash) cannot report it, and launchers differ: some name
// the host, others only say that the job failed. So each rank forks before its transport starts.
// The child measures. The parent waits, and when a signal that did not come through the launcher
// ends the child, it writes a failure record with rank, host and signal.
#pragma once

namespace assay {

// Returns in the child only. The parent forwards signals and exits with the child's status.
void split_off_guardian(int rank);

}  // namespace assay
