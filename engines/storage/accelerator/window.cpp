#include "storage/accelerator/window.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "storage/accelerator/job.hpp"
#include "storage/accelerator/remote.hpp"

namespace assay::storage {
namespace {

constexpr unsigned target_sleep_us = 100'000;      // of the rank that is read from
constexpr double max_response_s = 0.05;            // a longer response has waited for the target
constexpr std::uint64_t max_get_bytes = 1u << 30;  // counts are ints

}  // namespace

std::unique_ptr<Window> Window::open(Job& job, std::string& reason) {
    std::unique_ptr<Window> window(new Window(job));
    const StoreLayout& layout = job.store().layout();
    char* base = reinterpret_cast<char*>(&job.store().head(job.local_rank()));
    int created = PMPI_Win_create(base, static_cast<MPI_Aint>(layout.rank_bytes()), 1,
                                  MPI_INFO_NULL, job.world(), &window->window_) == MPI_SUCCESS;
    PMPI_Allreduce(MPI_IN_PLACE, &created, 1, MPI_INT, MPI_MIN, job.world());
    if (!created) {
        window->window_ = MPI_WIN_NULL;
        reason = "this MPI cannot create a window over this network";
        return nullptr;
    }
    PMPI_Win_set_errhandler(window->window_, MPI_ERRORS_RETURN);
    PMPI_Win_lock_all(MPI_MODE_NOCHECK, window->window_);
    if (window->makes_progress()) return window;
    reason = "this MPI's window makes no progress while its target computes";
    return nullptr;
}

Window::~Window() {
    if (window_ == MPI_WIN_NULL) return;
    PMPI_Win_unlock_all(window_);
    PMPI_Win_free(&window_);
}

// Rank 0 reads from the first rank of another node, which sleeps.
bool Window::makes_progress() {
    int size;
    PMPI_Comm_size(job_.world(), &size);
    int target = 0;
    while (target < size && job_.node_of(target) == job_.node_of(0)) ++target;
    PMPI_Barrier(job_.world());
    int answered = 1;
    if (job_.rank() == target) usleep(target_sleep_us);
    if (job_.rank() == 0 && target < size) {
        char bytes[page];
        const double from = PMPI_Wtime();
        answered =
            PMPI_Get(bytes, page, MPI_BYTE, target, 0, page, MPI_BYTE, window_) == MPI_SUCCESS &&
            PMPI_Win_flush(target, window_) == MPI_SUCCESS && PMPI_Wtime() - from < max_response_s;
    }
    PMPI_Bcast(&answered, 1, MPI_INT, 0, job_.world());
    return answered;
}

bool Window::fetch(std::vector<RemoteRead*>& reads) {
    const StoreLayout& layout = job_.store().layout();
    const auto data = static_cast<std::uint64_t>(page + layout.record_slots * sizeof(Record));
    std::vector<std::uint64_t> rings(reads.size()), first(reads.size());
    for (std::size_t k = 0; k < reads.size(); ++k)
        PMPI_Get(&rings[k], 8, MPI_BYTE, reads[k]->world_rank, offsetof(RankHead, ring_bytes), 8,
                 MPI_BYTE, window_);
    if (PMPI_Win_flush_all(window_)) return false;
    for (std::size_t k = 0; k < reads.size(); ++k) {
        const auto from = data + reads[k]->ring_offset % rings[k];
        for (std::uint64_t done = 0; done < reads[k]->bytes; done += max_get_bytes) {
            const int n = static_cast<int>(std::min(max_get_bytes, reads[k]->bytes - done));
            if (PMPI_Get(reads[k]->buffer + done, n, MPI_BYTE, reads[k]->world_rank,
                         static_cast<MPI_Aint>(from + done), n, MPI_BYTE, window_))
                return false;
        }
    }
    if (PMPI_Win_flush_all(window_)) return false;
    // Were the data still in the rings?
    for (std::size_t k = 0; k < reads.size(); ++k)
        PMPI_Get(&first[k], 8, MPI_BYTE, reads[k]->world_rank, offsetof(RankHead, first_byte), 8,
                 MPI_BYTE, window_);
    if (PMPI_Win_flush_all(window_)) return false;
    for (std::size_t k = 0; k < reads.size(); ++k)
        reads[k]->state =
            reads[k]->ring_offset >= first[k] ? RemoteRead::received : RemoteRead::evicted;
    return true;
}

}  // namespace assay::storage
