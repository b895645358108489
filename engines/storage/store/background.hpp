// How the ranks of a job use the background drain of their node: they start it and give it their
// files.
//
// The background drain (background_drain.hpp) is a process that outlives the job. A rank may close
// a file whose data are only in the store once the background drain holds a descriptor of it.
#pragma once

#include <cstdint>
#include <string>

#include "storage/store/store.hpp"

namespace assay::storage {

struct BackgroundSettings {
    std::string program;     // path of assay-store; "": in the folder of this library
    unsigned threads = 2;    // writing threads
    unsigned lag_ms = 20;    // pause between two drains while the job runs
    unsigned retry_s = 300;  // how long writes of a file that have failed are repeated
};

// Starts the store's background drain, unless it was started before, and waits until it runs, for
// 10 s at most. Any process of the node may call this. Returns false and sets `error` if the drain
// does not run.
bool start_background_drain(const Store& store, const BackgroundSettings& settings,
                            std::string& error);

// Whether the background drain runs. Makes system calls.
bool background_drain_runs(const Store& store);

// Asks the background drain to open the files that ranks hold open.
void request_background_open(const Store& store);

// Waits until the background drain holds the file open, for 10 s at most. `slot`: the file's number
// in the file table. Returns false if the drain cannot open the file or has ended.
bool wait_for_background_open(const Store& store, std::uint32_t slot);

}  // namespace assay::storage
