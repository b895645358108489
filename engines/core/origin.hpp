// Where this engine comes from, and with it the command that brings back what is missing beside it:
// as python/assay/errors.py has it.
#pragma once

#include <filesystem>
#include <string>

namespace assay {

// `executable`: in build/bin of a checkout, below /usr/lib/assay of the Debian package, else of the
// wheel.
inline std::string repair(const std::filesystem::path& executable) {
    const std::filesystem::path checkout =
        executable.parent_path().parent_path().parent_path() / "CMakeLists.txt";
    if (std::filesystem::exists(checkout)) return "make setup";
    return executable.string().starts_with("/usr/lib/assay/")
               ? "apt-get install --reinstall ./assay_*.deb"
               : "pip install --force-reinstall ./assay-*.whl";
}

}  // namespace assay
