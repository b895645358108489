#include "profile/attach/standing.hpp"

#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "profile/attach/status.hpp"

namespace assay::attach {
namespace {

enum class Owner : std::uint8_t { program, libc, loader, allocator, hooks };

// The names of glibc's functions in which a thread waits, and holds no lock of the library's
// meanwhile.
constexpr std::array<std::string_view, 61> waits = {"read",
                                                    "pread64",
                                                    "readv",
                                                    "write",
                                                    "pwrite64",
                                                    "writev",
                                                    "recv",
                                                    "recvfrom",
                                                    "recvmsg",
                                                    "recvmmsg",
                                                    "send",
                                                    "sendto",
                                                    "sendmsg",
                                                    "sendmmsg",
                                                    "accept",
                                                    "accept4",
                                                    "connect",
                                                    "poll",
                                                    "ppoll",
                                                    "select",
                                                    "pselect",
                                                    "epoll_wait",
                                                    "epoll_pwait",
                                                    "epoll_pwait2",
                                                    "nanosleep",
                                                    "clock_nanosleep",
                                                    "usleep",
                                                    "sleep",
                                                    "pause",
                                                    "sigsuspend",
                                                    "sigwait",
                                                    "sigwaitinfo",
                                                    "sigtimedwait",
                                                    "wait",
                                                    "waitpid",
                                                    "wait3",
                                                    "wait4",
                                                    "waitid",
                                                    "syscall",
                                                    "semop",
                                                    "semtimedop",
                                                    "msgrcv",
                                                    "msgsnd",
                                                    "flock",
                                                    "fsync",
                                                    "sched_yield",
                                                    "ioctl",
                                                    "pthread_join",
                                                    "pthread_timedjoin_np",
                                                    "pthread_clockjoin_np",
                                                    "pthread_mutex_lock",
                                                    "pthread_mutex_timedlock",
                                                    "pthread_cond_wait",
                                                    "pthread_cond_timedwait",
                                                    "pthread_cond_clockwait",
                                                    "pthread_rwlock_rdlock",
                                                    "pthread_rwlock_wrlock",
                                                    "pthread_barrier_wait",
                                                    "sem_wait",
                                                    "sem_timedwait",
                                                    "sem_clockwait"};

// Those that hold something while they run what is not theirs, or are interrupted.
constexpr std::array<std::string_view, 34> holding = {"malloc",
                                                      "calloc",
                                                      "realloc",
                                                      "reallocarray",
                                                      "free",
                                                      "cfree",
                                                      "memalign",
                                                      "aligned_alloc",
                                                      "posix_memalign",
                                                      "valloc",
                                                      "pvalloc",
                                                      "malloc_trim",
                                                      "malloc_info",
                                                      "mallinfo",
                                                      "mallinfo2",
                                                      "malloc_stats",
                                                      "malloc_usable_size",
                                                      "mallopt",
                                                      "fork",
                                                      "Fork",
                                                      "vfork",
                                                      "posix_spawn",
                                                      "posix_spawnp",
                                                      "popen",
                                                      "system",
                                                      "dl_iterate_phdr",
                                                      "dlopen",
                                                      "dlmopen",
                                                      "dlclose",
                                                      "dlsym",
                                                      "dlvsym",
                                                      "dladdr",
                                                      "pthread_create",
                                                      "exit"};

bool is_among(const auto& names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
}

// By which a function is known, of the several that it may have: __libc_malloc is malloc.
std::string_view plain(const char* name) {
    std::string_view found = name != nullptr ? name : "";
    found = found.substr(0, found.find('@'));
    found.remove_prefix(std::min(found.find_first_not_of('_'), found.size()));
    if (found.starts_with("libc_")) found.remove_prefix(5);
    return found;
}

int find_no_debuginfo(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*,
                      GElf_Word, char**) {
    return -1;
}

const Dwfl_Callbacks callbacks = {.find_elf = dwfl_linux_proc_find_elf,
                                  .find_debuginfo = find_no_debuginfo,
                                  .section_address = dwfl_offline_section_address,
                                  .debuginfo_path = nullptr};

struct Frames {
    std::vector<std::uint64_t> pcs;  // the innermost first; of a call, within it
    bool is_whole = false;
};

constexpr std::size_t most_frames = 4096;

int take_frame(Dwfl_Frame* frame, void* into) {
    auto& frames = *static_cast<Frames*>(into);
    Dwarf_Addr pc = 0;
    bool is_activation = false;
    if (!dwfl_frame_pc(frame, &pc, &is_activation)) return DWARF_CB_ABORT;
    if (pc == 0) return DWARF_CB_OK;
    frames.pcs.push_back(is_activation ? pc : pc - 1);
    return frames.pcs.size() < most_frames ? DWARF_CB_OK : DWARF_CB_ABORT;
}

std::uint64_t exported(Dwfl_Module* module, const char* name) {
    const int n = module != nullptr ? dwfl_module_getsymtab(module) : 0;
    for (int k = 0; k < n; ++k) {
        GElf_Sym symbol;
        GElf_Addr at = 0;
        const char* found =
            dwfl_module_getsym_info(module, k, &symbol, &at, nullptr, nullptr, nullptr);
        if (found == nullptr || symbol.st_shndx == SHN_UNDEF ||
            GELF_ST_TYPE(symbol.st_info) != STT_FUNC)
            continue;
        // "name" or "name@@VERSION"
        const std::size_t length = std::strlen(name);
        if (std::strncmp(found, name, length) == 0 && (found[length] == 0 || found[length] == '@'))
            return at;
    }
    return 0;
}

}  // namespace

struct Process::Inner {
    Dwfl* dwfl = nullptr;
    std::string hooks_path;
    Dwfl_Module *libc = nullptr, *hooks = nullptr;
    std::map<Dwfl_Module*, Owner> owners;
    bool is_first = true, has_allocator = false;  // the program itself

    ~Inner() {
        if (dwfl != nullptr) dwfl_end(dwfl);
    }

    void add(Dwfl_Module* module, const std::string& path) {
        const std::string name = std::filesystem::path(path).filename();
        Owner owner = Owner::program;
        if (name.starts_with("ld-linux") || name.starts_with("ld-2.") ||
            name.starts_with("ld.so")) {
            owner = Owner::loader;
        } else if (is_libc(path)) {
            owner = Owner::libc;
            libc = module;
        } else if (path == hooks_path) {
            owner = Owner::hooks;
            hooks = module;
        } else if (name.starts_with("libpthread") || name.starts_with("libdl")) {
            owner = Owner::libc;  // before glibc 2.34
        } else if (exported(module, "malloc") != 0) {
            // Inside of a program that has its own, names tell where it is.
            if (is_first) has_allocator = true;
            else owner = Owner::allocator;
        }
        is_first = false;
        owners[module] = owner;
    }

    Owner owner_of(Dwfl_Module* module) const {
        const auto found = owners.find(module);
        return found != owners.end() ? found->second : Owner::program;
    }
};

Process::Process(pid_t pid, const std::string& hooks) : inner_(std::make_unique<Inner>()) {
    inner_->hooks_path = hooks;
    inner_->dwfl = dwfl_begin(&callbacks);
    const auto take = [](Dwfl_Module* module, void**, const char* name, Dwarf_Addr, void* into) {
        static_cast<Inner*>(into)->add(module, name);
        return static_cast<int>(DWARF_CB_OK);
    };
    if (inner_->dwfl == nullptr || dwfl_linux_proc_report(inner_->dwfl, pid) != 0 ||
        dwfl_report_end(inner_->dwfl, nullptr, nullptr) != 0 ||
        dwfl_getmodules(inner_->dwfl, take, inner_.get(), 0) != 0 ||
        dwfl_linux_proc_attach(inner_->dwfl, pid, true) != 0)
        throw Error(
            fmt::format("what process {} has loaded cannot be read: {}", pid, dwfl_errmsg(-1)));
}

Process::~Process() = default;

Standing Process::standing(pid_t tid) const {
    Frames frames;
    frames.is_whole =
        dwfl_getthread_frames(inner_->dwfl, tid, take_frame, &frames) == 0 && !frames.pcs.empty();
    Standing found{
        .may_call = frames.is_whole, .lets_be_changed = !frames.pcs.empty(), .is_in_hooks = false};
    bool is_inside = true;  // of what is not the program's, from the innermost frame on
    bool waits_there = false;
    for (const std::uint64_t& pc : frames.pcs) {
        Dwfl_Module* const module = dwfl_addrmodule(inner_->dwfl, pc);
        const Owner owner = inner_->owner_of(module);
        const std::string_view name =
            plain(module != nullptr ? dwfl_module_addrname(module, pc) : nullptr);
        const bool names_count =
            owner == Owner::libc || (owner == Owner::program && inner_->has_allocator);
        if (owner == Owner::hooks) found.is_in_hooks = true;
        if (owner == Owner::loader || owner == Owner::allocator || owner == Owner::hooks ||
            (names_count && is_among(holding, name)))
            found.may_call = false;
        if ((owner == Owner::libc && name == "dl_iterate_phdr") ||
            (is_inside && owner == Owner::loader))
            found.lets_be_changed = false;
        if (is_inside && owner == Owner::program) {
            is_inside = false;
            if (&pc != &frames.pcs.front() && !waits_there) found.may_call = false;
        }
        if (is_inside) waits_there |= is_among(waits, name);
    }
    if (is_inside) found.may_call = false;
    return found;
}

std::uint64_t Process::in_libc(const char* name) const { return exported(inner_->libc, name); }
std::uint64_t Process::in_hooks(const char* name) const { return exported(inner_->hooks, name); }

}  // namespace assay::attach
