// The operations of the metadata benchmark on one file or directory, by POSIX calls and by MPI-IO.
#include "storage/metadata/items.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace assay::storage {
namespace {

constexpr mode_t file_mode = 0644, folder_mode = 0755;
// The data of file number k are those that Content computes for the file offset k * content_stride.
constexpr std::uint64_t content_stride = std::uint64_t{1} << 30;

std::string item_path(const Tree& tree, const char* kind, int owner, std::uint64_t number) {
    return fmt::format("{}/{}.{}.{}", tree.folder(owner), kind, owner, number);
}

}  // namespace

std::string Tree::folder(int owner) const {
    return unique ? fmt::format("{}/{}", root, owner) : fmt::format("{}/all", root);
}

std::string Tree::file(int owner, std::uint64_t number) const {
    return item_path(*this, "file", owner, number);
}

std::string Tree::renamed(int owner, std::uint64_t number) const {
    return item_path(*this, "renamed", owner, number);
}

std::string Tree::directory(int owner, std::uint64_t number) const {
    return item_path(*this, "directory", owner, number);
}

void Items::require(std::int64_t result, const char* action, const std::string& path) const {
    if (result < 0)
        ranks_.fail(fmt::format("cannot {} {}: {}", action, path, std::strerror(errno)),
                    "check on every host that the folder is writable, and has space and inodes");
}

bool Items::exists(int result, const char* action, const std::string& path) const {
    if (result < 0 && errno == ENOENT) return false;
    require(result, action, path);
    return true;
}

bool Items::exists_mpi(int result, const char* action, const std::string& path) const {
    int kind = MPI_SUCCESS;
    MPI_Error_class(result, &kind);
    if (kind == MPI_ERR_NO_SUCH_FILE) return false;
    ranks_.check(result, action, path);
    return true;
}

void Items::set_data(const Content& content, std::uint64_t number) {
    if (data_.empty()) return;
    content.fill(data_.data(), data_.size());
    content.stamp_transfer(data_.data(), data_.size(), number * content_stride);
}

bool Items::is_as_written(std::size_t bytes, const Content& content, std::uint64_t number) {
    if (bytes != data_.size()) return false;
    return !content.check_bytes(data_.data(), data_.size(), number * content_stride);
}

void Items::create(const std::string& path, const Content& content, std::uint64_t number) {
    const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, file_mode);
    require(file, "create", path);
    set_data(content, number);
    for (std::size_t done = 0; done < data_.size();) {
        errno = ENOSPC;  // the error if the write returns 0
        const ssize_t written = ::write(file, data_.data() + done, data_.size() - done);
        require(written > 0 ? written : -1, "write", path);
        done += static_cast<std::size_t>(written);
    }
    if (sync_) require(::fsync(file), "sync", path);
    require(::close(file), "close", path);
}

bool Items::stat_file(const std::string& path) const {
    struct stat status{};
    if (!exists(::stat(path.c_str(), &status), "stat", path)) return false;
    return S_ISREG(status.st_mode) && static_cast<std::size_t>(status.st_size) == data_.size();
}

bool Items::open(const std::string& path, const Content& content, std::uint64_t number) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (!exists(file, "open", path)) return false;
    std::size_t done = 0;
    for (ssize_t bytes_read = 1; bytes_read > 0 && done < data_.size();
         done += static_cast<std::size_t>(bytes_read)) {
        bytes_read = ::read(file, data_.data() + done, data_.size() - done);
        require(bytes_read, "read", path);
    }
    require(::close(file), "close", path);
    return is_as_written(done, content, number);
}

bool Items::rename(const std::string& from, const std::string& to) const {
    return exists(::rename(from.c_str(), to.c_str()), "rename", from);
}

bool Items::unlink(const std::string& path) const {
    return exists(::unlink(path.c_str()), "unlink", path);
}

void Items::make_directory(const std::string& path) const {
    require(::mkdir(path.c_str(), folder_mode), "make the directory", path);
}

bool Items::stat_directory(const std::string& path) const {
    struct stat status{};
    return exists(::stat(path.c_str(), &status), "stat", path) && S_ISDIR(status.st_mode);
}

bool Items::remove_directory(const std::string& path) const {
    return exists(::rmdir(path.c_str()), "remove the directory", path);
}

std::uint64_t Items::list(const std::string& path, const std::function<bool()>& continues) const {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
    if (!folder)
        ranks_.fail(fmt::format("cannot list {}: {}", path, std::strerror(errno)),
                    "check on every host that the folder is there and readable");
    std::uint64_t entries = 0;
    while (continues()) {
        errno = 0;
        const dirent* entry = ::readdir(folder.get());
        if (!entry) {
            require(errno ? -1 : 0, "list", path);
            break;
        }
        const std::string_view name = entry->d_name;
        entries += name != "." && name != "..";
    }
    return entries;
}

void Items::create_mpi(const std::string& path, const Content& content, std::uint64_t number) {
    MpiFile file(ranks_, MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_WRONLY);
    set_data(content, number);
    const int bytes = static_cast<int>(data_.size());
    int written = bytes;
    if (bytes) {
        MPI_Status status;
        ranks_.check(MPI_File_write_at(file.handle(), 0, data_.data(), bytes, MPI_BYTE, &status),
                     "write", path);
        MPI_Get_count(&status, MPI_BYTE, &written);
    }
    if (written != bytes) ranks_.check(MPI_ERR_NO_SPACE, "write", path);
    if (sync_) file.sync();
    file.close();
}

bool Items::open_mpi(const std::string& path, const Content& content, std::uint64_t number) {
    MPI_File handle = MPI_FILE_NULL;
    if (!exists_mpi(
            MPI_File_open(MPI_COMM_SELF, path.c_str(), MPI_MODE_RDONLY, MPI_INFO_NULL, &handle),
            "open", path))
        return false;
    const int bytes = static_cast<int>(data_.size());
    int bytes_read = 0;
    if (bytes) {
        MPI_Status status;
        ranks_.check(MPI_File_read_at(handle, 0, data_.data(), bytes, MPI_BYTE, &status), "read",
                     path);
        MPI_Get_count(&status, MPI_BYTE, &bytes_read);
    }
    ranks_.check(MPI_File_close(&handle), "close", path);
    return is_as_written(static_cast<std::size_t>(bytes_read), content, number);
}

bool Items::delete_mpi(const std::string& path) const {
    return exists_mpi(MPI_File_delete(path.c_str(), MPI_INFO_NULL), "delete", path);
}

}  // namespace assay::storage
