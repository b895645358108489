// Names the runtime library that keeps a block, by the functions and objects on its stack.
#include "profile/analyse/runtime_pools.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

namespace assay::heap {
namespace {

constexpr char stdio[] = "stdio", cxx_library[] = "libstdc++", loader[] = "the loader",
               c_library[] = "the C library";

// Functions of glibc that keep what they allocate in variables of their own, with no block for the
// caller to free: locales, translations, time zones, converters, users, hosts, errors of dlopen.
// Without leading underscores and "GI_", which depend on glibc's debug information.
constexpr std::array<std::string_view, 35> keeping_functions = {
    "setlocale",      "bindtextdomain",   "textdomain",    "bind_textdomain_codeset",
    "gettext",        "dgettext",         "dcgettext",     "ngettext",
    "dngettext",      "dcngettext",       "dcigettext",    "tzset",
    "tzset_internal", "tz_convert",       "localtime",     "mktime",
    "strftime",       "gconv_find_shlib", "getpwnam",      "getpwuid",
    "getgrnam",       "getgrgid",         "getpwnam_r",    "getpwuid_r",
    "getgrnam_r",     "getgrgid_r",       "gethostbyname", "gethostbyaddr",
    "res_vinit",      "dlopen",           "dlsym",         "dlerror",
    "dlerror_run",    "cxa_atexit",       "on_exit"};

// A function of glibc by its public name.
std::string_view public_name(std::string_view function) {
    if (function.starts_with("__GI_")) function.remove_prefix(5);
    return function.substr(std::min(function.find_first_not_of('_'), function.size()));
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }
bool is_loader(std::string_view module) { return file_name(module).starts_with("ld-linux"); }
bool is_c_library(std::string_view module) { return file_name(module).starts_with("libc.so"); }
bool is_cxx_library(std::string_view module) {
    return file_name(module).starts_with("libstdc++.so");
}

// The name of the pool that blocks of a node's stack belong to; null: they are the program's.
const char* runtime_pool(const CallTree& tree, std::uint32_t node) {
    const auto location_of = [&](std::uint32_t n) -> const Location& {
        return *tree.locations()[tree.nodes()[n].location].location;
    };
    if (is_loader(location_of(node).module)) return loader;
    for (; node != CallTree::none; node = tree.nodes()[node].parent) {
        const auto& [function, file, line, module, inlined] = location_of(node);
        // Its initialisers run in the executable, too, where the library is linked statically.
        if (function == "_GLOBAL__sub_I_eh_alloc.cc") return cxx_library;
        if (is_cxx_library(module)) {
            if (function.starts_with("std::ios_base::sync_with_stdio(")) return cxx_library;
            const std::uint32_t caller = tree.nodes()[node].parent;
            // The loader calls nothing of a library but its initialisers.
            if (caller != CallTree::none && is_loader(location_of(caller).module))
                return cxx_library;
        } else if (is_c_library(module)) {
            const std::string_view name = public_name(function);
            if (name == "IO_file_doallocate" || name == "IO_wfile_doallocate") return stdio;
            if (std::ranges::find(keeping_functions, name) != keeping_functions.end())
                return c_library;
        } else if (!is_allocator_function(function)) {
            return nullptr;
        }
    }
    return nullptr;
}

}  // namespace

std::vector<HeapPool> separate_runtime_pools(const CallTree& tree, AllocationStats& stats) {
    std::map<std::string_view, HeapPool> by_name;
    for (std::uint32_t node = 0; node < tree.nodes().size(); ++node) {
        StackStats& figures = stats.stacks[node];
        const char* name = figures.leaked_count > 0 ? runtime_pool(tree, node) : nullptr;
        if (name == nullptr) continue;
        HeapPool& pool = by_name[name];
        pool = {name, pool.bytes + figures.leaked, pool.count + figures.leaked_count};
        stats.leaked -= figures.leaked;
        stats.leaked_count -= figures.leaked_count;
        figures.pooled = std::exchange(figures.leaked, 0);
        figures.leaked_count = 0;
    }
    std::vector<HeapPool> pools;
    pools.reserve(by_name.size());
    for (auto& [name, pool] : by_name) pools.push_back(std::move(pool));
    std::ranges::sort(pools, std::greater<>(), &HeapPool::bytes);
    return pools;
}

}  // namespace assay::heap
