// The background drain: a process of the node that writes a store's data into the file system while
// the job runs, and after it. Each store whose job acknowledges data in memory has one.
//
// While the job runs it holds a descriptor of each file that ranks hold open for writing, so that
// renaming or unlinking a file after its close still reaches the right one. It ends by itself when
// no rank runs and the file system has all data; then it removes the store. If a file cannot be
// written, it tries again for a while, then ends and leaves the store to recovery.
#pragma once

#include <cstdint>

#include "storage/store/background.hpp"
#include "storage/store/drain.hpp"
#include "storage/store/file_handles.hpp"
#include "storage/store/file_table.hpp"
#include "storage/store/store.hpp"

namespace assay::storage {

class BackgroundDrain {
public:
    // `store` is attached with the shared lock.
    BackgroundDrain(Store& store, const BackgroundSettings& settings);

    // Drains until the store is removed (true) or a file could not be written for
    // BackgroundSettings::retry_s (false).
    bool run();

private:
    void open_files_of_ranks();
    bool is_open_in_a_rank(std::uint32_t slot) const;
    void open_file_of_ranks(std::uint32_t slot);
    void complete_files();
    void complete(std::uint32_t slot, const SharedDescriptor& descriptor);
    bool release(std::uint32_t slot, const SharedDescriptor& descriptor);
    void record_closed_state(FileSlot& file, const FileStatus& status);
    bool ranks_have_ended() const;
    bool is_last_user() const;
    void open_remaining_files();
    bool finish();

    Store& store_;
    BackgroundSettings settings_;
    FileHandles handles_;
    Drain drain_;
};

}  // namespace assay::storage
