#include "profile/heap/settings.hpp"

#include <string.h>
#include <unistd.h>

#include "profile/heap/arena.hpp"
#include "profile/heap/filter.hpp"

namespace assay::heap {
namespace {

char given[8 << 10];  // empty: the environment has them

// After "name=" in an entry; null when it is another's.
const char* value_of(const char* entry, const char* name) {
    const std::size_t n = strlen(name);
    return strncmp(entry, name, n) == 0 && entry[n] == '=' ? entry + n + 1 : nullptr;
}

const char* in_environment(const char* name) {
    if (environ == nullptr) return "";
    for (char** entry = environ; *entry != nullptr; ++entry)
        if (const char* value = value_of(*entry, name)) return value;
    return "";
}

std::uint64_t number_in(const char* text) {
    std::uint64_t value = 0;
    for (; *text >= '0' && *text <= '9'; ++text)
        value = 10 * value + static_cast<std::uint64_t>(*text - '0');
    return value;
}

}  // namespace

const char* variable(const char* name) {
    if (given[0] == 0) return in_environment(name);
    for (const char* entry = given; *entry != 0; entry += strlen(entry) + 1)
        if (const char* value = value_of(entry, name)) return value;
    return "";
}

bool take_settings(const char* variables, std::size_t bytes) {
    if (bytes + 2 > sizeof given) return false;
    memset(given, 0, sizeof given);
    memcpy(given, variables, bytes);
    return true;
}

const char* own_rank() {
    for (const char* name : rank_variables)
        if (const char* rank = in_environment(name); *rank != 0) return rank;
    return "";
}

bool is_wanted_rank() {
    const char *ranks = variable(ranks_variable), *own = own_rank();
    if (*ranks == 0) return true;
    if (*own == 0) return false;
    for (const char* at = ranks; *at != 0;) {
        if (number_in(at) == number_in(own)) return true;
        while (*at != 0 && *at++ != ',') {
        }
    }
    return false;
}

bool read_filter() {
    filter.at_least = number_in(variable(at_least_variable));
    filter.sample = number_in(variable(sample_variable));
    filter.is_on = (filter.at_least | filter.sample) != 0;
    return filter.sample == 0 || taken.reserve();
}

}  // namespace assay::heap
