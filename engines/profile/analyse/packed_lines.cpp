// zlib reads plain files as they are, so it is asked for all that is not zstd.
#include "profile/analyse/packed_lines.hpp"

#include <cerrno>
#include <cstring>

#include "core/error.hpp"

namespace assay::heap {
namespace {

// Limits memory, since a few compressed bytes may be gigabytes. The longest valid lines are names
// of C++ functions.
constexpr std::size_t max_line_bytes = 1 << 20;
constexpr unsigned piece_bytes = 1 << 17;

struct OtherCompression {
    std::string_view magic, name, command;
};
constexpr OtherCompression other_compressions[] = {{"BZh", "bzip2", "bunzip2"},
                                                   {{"\xfd"
                                                     "7zXZ\0",
                                                     6},
                                                    "xz",
                                                    "unxz"},
                                                   {"\x04\x22\x4d\x18", "lz4", "unlz4"}};

}  // namespace

PackedLines::PackedLines(const std::string& path)
    : file_(std::fopen(path.c_str(), "rb"), std::fclose),
      context_(nullptr, ZSTD_freeDCtx),
      zlib_file_(nullptr, gzclose) {
    if (file_ == nullptr) throw Error("cannot read " + path + ": " + std::strerror(errno));
    char head[8] = {};
    const std::string_view first(head, std::fread(head, 1, sizeof head, file_.get()));
    if (std::fseek(file_.get(), 0, SEEK_SET) != 0) {
        if (errno == ESPIPE)
            throw Error(path + " is a pipe", "write what comes out of it to a file");
        throw Error("cannot read " + path + ": " + std::strerror(errno));
    }
    for (const auto& [magic, name, command] : other_compressions)
        if (first.starts_with(magic))
            throw Error(path + " is compressed by " + std::string(name),
                        "unpack it: " + std::string(command) + " " + path);
    if (first.starts_with("\x28\xb5\x2f\xfd")) {
        context_.reset(ZSTD_createDCtx());
    } else {
        zlib_file_.reset(gzopen(path.c_str(), "rb"));
        if (zlib_file_ == nullptr) throw Error("cannot read " + path);
    }
}

std::uint64_t PackedLines::bytes() const {
    return zlib_file_ == nullptr ? bytes_ : static_cast<std::uint64_t>(gzoffset(zlib_file_.get()));
}

bool PackedLines::next(std::string_view& line) {
    for (std::size_t searched = offset_;;) {
        if (const std::size_t end = text_.find('\n', searched); end != std::string::npos) {
            line = std::string_view(text_).substr(offset_, end - offset_);
            if (line.ends_with('\r')) line.remove_suffix(1);
            offset_ = end + 1;
            return true;
        }
        text_.erase(0, offset_);
        offset_ = 0;
        searched = text_.size();
        if (searched > max_line_bytes) damaged_ = true;
        if (damaged_ || !read_more()) {
            cut_off_ = cut_off_ || (!damaged_ && !text_.empty());
            return false;
        }
    }
}

bool PackedLines::read_more() {
    const std::size_t old_size = text_.size();
    text_.resize(old_size + piece_bytes);
    char* target = text_.data() + old_size;
    const std::size_t read =
        zlib_file_ == nullptr ? read_zstd(target, piece_bytes) : read_zlib(target, piece_bytes);
    text_.resize(old_size + read);
    return read > 0;
}

// Returns 0 at the end, whether the data end there or lack their end.
std::size_t PackedLines::read_zstd(char* target, std::size_t size) {
    for (ZSTD_outBuffer output{target, size, 0}; output.pos == 0;) {
        if (input_.pos == input_.size) {
            input_ = {compressed_, std::fread(compressed_, 1, sizeof compressed_, file_.get()), 0};
            bytes_ += input_.size;
        }
        const bool at_end = input_.size == 0;
        if (at_end && missing_ == 0) return 0;
        missing_ = ZSTD_decompressStream(context_.get(), &output, &input_);
        damaged_ = ZSTD_isError(missing_) != 0;
        if (damaged_ || output.pos > 0) return damaged_ ? 0 : output.pos;
        if (at_end) {
            cut_off_ = true;
            return 0;
        }
    }
    return 0;
}

std::size_t PackedLines::read_zlib(char* target, unsigned size) {
    const int read = gzread(zlib_file_.get(), target, size);
    int status = Z_OK;
    gzerror(zlib_file_.get(), &status);
    if (status == Z_BUF_ERROR) cut_off_ = true;
    else if (status != Z_OK && status != Z_STREAM_END) damaged_ = read <= 0;
    return read > 0 ? static_cast<std::size_t>(read) : 0;
}

}  // namespace assay::heap
