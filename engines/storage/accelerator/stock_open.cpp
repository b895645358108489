#include "storage/accelerator/stock_open.hpp"

#include <cstdio>
#include <cstring>
#include <mutex>

#include "storage/accelerator/errors.hpp"
#include "storage/accelerator/system_file.hpp"
#include "storage/store/durability.hpp"
#include "storage/store/other_jobs.hpp"
#include "storage/store/progress.hpp"

namespace assay::storage {
namespace {

// Writes what this and earlier jobs have acknowledged of the file and the file may lack. This node
// reads what is older than `before` from the file afterwards, because the MPI library may change
// it. Returns an error message; empty: the file can be opened.
std::string write_stored_data(Job& job, const std::string& path, std::uint64_t before) {
    Store& store = job.store();
    FileStatus status;
    if (read_status(path.c_str(), status) || !status.regular)
        return {};  // the MPI library says why
    if (auto error = wait_for_other_jobs(store, status, job.settings().wait_s); !error.empty())
        return error;
    const std::uint32_t number = find_slot(store, status);
    if (number == file_slots) return {};
    auto& slot = store.file(number);
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank)
        job.drain().finish(rank, store.head(rank).tail.load());
    int error = 0;
    if (!is_durable(store, number)) {
        const auto descriptor = job.handles().open_for_writing(number, error);
        if (descriptor) error = job.write_and_sync(number, *descriptor);
    }
    if (error) return std::string("data of it cannot be written: ") + std::strerror(error);
    // A write that has begun may get a sequence before `before` and not be durable yet.
    raise_to(slot.foreign_before, slot.durable.load());
    if (job.nodes() == 1 || !slot.shared.load()) return {};
    const std::lock_guard guard(job.lock());
    if (!job.resolver().wait_until_pushed(Push::sync, store.now(), true))
        return "a node does not answer, or cannot write the data that it has of it";
    raise_to(slot.foreign_before, before);
    return {};
}

}  // namespace

// Not every MPI allows that without an open file, so /dev/null is opened.
int call_default_handler(int code) {
    MPI_Errhandler handler;
    MPI_File file;
    PMPI_File_get_errhandler(MPI_FILE_NULL, &handler);
    if (PMPI_File_open(MPI_COMM_SELF, "/dev/null", MPI_MODE_RDONLY, MPI_INFO_NULL, &file) ==
        MPI_SUCCESS) {
        PMPI_File_set_errhandler(file, handler);
        PMPI_File_call_errhandler(file, code);
        PMPI_File_close(&file);
    }
    PMPI_Errhandler_free(&handler);
    return code;
}

int open_without_store(Job& job, MPI_Comm comm, const char* name, int mode, MPI_Info info,
                       MPI_File* handle) {
    std::uint64_t now = job.store().now();
    PMPI_Allreduce(MPI_IN_PLACE, &now, 1, MPI_UINT64_T, MPI_MAX, comm);
    job.store().advance_clock(now + 1);
    const std::string path = strip_prefix(name, any_prefix);
    const std::string error = write_stored_data(job, path, now + 1);
    if (!error.empty())
        std::fprintf(stderr, "assay io: %s cannot be opened: %s\n", path.c_str(), error.c_str());
    const int code = worst_error_class(comm, error.empty() ? MPI_SUCCESS : MPI_ERR_IO);
    return code ? call_default_handler(code) : PMPI_File_open(comm, name, mode, info, handle);
}

}  // namespace assay::storage
