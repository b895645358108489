// Reads a text line by line from a file that is plain or compressed by zstd or gzip, as its first
// bytes tell. A file that ends in the middle gives the lines before its end.
#pragma once

#include <zlib.h>
#include <zstd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace assay::heap {

class PackedLines {
public:
    explicit PackedLines(const std::string& path);  // throws Error
    // Returns false at the end of the file, and where it is damaged or cut off.
    bool next(std::string_view& line);
    bool damaged() const { return damaged_; }
    // The compressed data, or the last line, lack their end. Known when next() has returned false.
    bool cut_off() const { return cut_off_; }
    // What follows the last whole line. Known when next() has returned false.
    std::string_view rest() const { return text_; }
    std::uint64_t bytes() const;  // of the file, read so far

private:
    bool read_more();
    std::size_t read_zstd(char* target, std::size_t size);
    std::size_t read_zlib(char* target, unsigned size);

    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;  // of zstd
    std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context_;
    std::unique_ptr<gzFile_s, int (*)(gzFile)> zlib_file_;  // of gzip, and plain
    char compressed_[1 << 16];
    ZSTD_inBuffer input_{compressed_, 0, 0};
    std::size_t missing_ = 0;  // bytes that zstd still expects; 0 at the end of a frame
    std::string text_;
    std::size_t offset_ = 0;
    std::uint64_t bytes_ = 0;
    bool damaged_ = false, cut_off_ = false;
};

}  // namespace assay::heap
