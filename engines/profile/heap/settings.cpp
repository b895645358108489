// Reads the settings of the hooks from the environment or from the attaching recorder.
#include "profile/heap/settings.hpp"

#include <string.h>
#include <unistd.h>

#include "core/rank_variables.hpp"
#include "profile/heap/arena.hpp"
#include "profile/heap/filter.hpp"

namespace assay::heap {
namespace {

char settings_block[8 << 10];  // set by attaching; empty: the environment is used

// The value in "name=value"; null for another name.
const char* value_of(const char* entry, const char* name) {
    const std::size_t n = strlen(name);
    return strncmp(entry, name, n) == 0 && entry[n] == '=' ? entry + n + 1 : nullptr;
}

const char* get_environment(const char* name) {
    if (environ == nullptr) return "";
    for (char** entry = environ; *entry != nullptr; ++entry)
        if (const char* value = value_of(*entry, name)) return value;
    return "";
}

std::uint64_t parse_number(const char* text) {
    std::uint64_t value = 0;
    for (; *text >= '0' && *text <= '9'; ++text)
        value = 10 * value + static_cast<std::uint64_t>(*text - '0');
    return value;
}

}  // namespace

const char* setting(const char* name) {
    if (settings_block[0] == 0) return get_environment(name);
    for (const char* entry = settings_block; *entry != 0; entry += strlen(entry) + 1)
        if (const char* value = value_of(entry, name)) return value;
    return "";
}

bool set_settings(const char* variables, std::size_t bytes) {
    if (bytes + 2 > sizeof settings_block) return false;
    memset(settings_block, 0, sizeof settings_block);
    memcpy(settings_block, variables, bytes);
    return true;
}

const char* mpi_rank() {
    for (const char* name : rank_variables)
        if (const char* rank = get_environment(name); *rank != 0) return rank;
    return "";
}

bool is_recorded_rank() {
    const char *ranks = setting(ranks_variable), *rank = mpi_rank();
    if (*ranks == 0) return true;
    if (*rank == 0) return false;
    for (const char* entry = ranks; *entry != 0;) {
        if (parse_number(entry) == parse_number(rank)) return true;
        while (*entry != 0 && *entry++ != ',') {
        }
    }
    return false;
}

bool load_filter() {
    filter.min_block_bytes = parse_number(setting(min_block_variable));
    filter.sample_bytes = parse_number(setting(sample_variable));
    filter.is_active = (filter.min_block_bytes | filter.sample_bytes) != 0;
    return filter.sample_bytes == 0 || sampled_blocks.reserve();
}

}  // namespace assay::heap
