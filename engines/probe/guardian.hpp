// Why a rank died, said by one who survived it.
//
// A rank that is killed (by the kernel short of memory, by a fault of its own) can say nothing, and
// launchers differ in what they tell: some name the host, some only that something ended badly. So
// a rank splits in two before its transport starts: the child measures, the parent waits and, when
// the child is ended by a signal that nobody sent through the launcher, writes the failure with
// rank, host and signal.
#pragma once

namespace assay {

// Returns in the child. The parent passes signals on and ends as the child did.
void split_off_guardian(int rank);

}  // namespace assay
