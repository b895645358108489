// Reads and adds the info keys assay_io and assay_io_until of a file.
#include "storage/accelerator/file_info.hpp"

namespace assay::storage {
namespace {

constexpr const char* use_key = "assay_io";
constexpr const char* until_key = "assay_io_until";

bool read_key(MPI_Info info, const char* key, std::string& value) {
    if (info == MPI_INFO_NULL) return false;
    char text[64]{};
    int is_set = 0;
    PMPI_Info_get(info, key, sizeof text - 1, text, &is_set);
    value = text;
    return is_set != 0;
}

}  // namespace

InfoKeys read_info_keys(MPI_Info info, const Settings& settings, const std::string& name) {
    InfoKeys keys{settings.covers(name), settings.until_memory, {}};
    std::string value;
    if (read_key(info, use_key, value)) {
        if (value == "enable" || value == "disable") keys.accelerated = value == "enable";
        else
            keys.unknown = "info key assay_io=" + value + " of " + name +
                           ": enable or disable is expected; the key is ignored";
    }
    if (read_key(info, until_key, value)) {
        keys.memory = value == "memory";
        if (!keys.memory && value != "file")
            keys.unknown = "info key assay_io_until=" + value + " of " + name +
                           ": memory or file is expected; file is used";
    }
    return keys;
}

void add_info_keys(MPI_Info info, bool written, bool memory) {
    if (info == MPI_INFO_NULL) return;
    PMPI_Info_set(info, use_key, "enable");
    if (written) PMPI_Info_set(info, until_key, memory ? "memory" : "file");
}

}  // namespace assay::storage
