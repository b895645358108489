// Unwinds the threads of another process with libdwfl and classifies the functions on their stacks.
#include "profile/attach/thread_safety.hpp"

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

// glibc functions in which a thread may wait without holding a lock of the library.
constexpr std::array<std::string_view, 61> waiting_functions = {"read",
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

// Functions that may hold a lock when they are interrupted or call back into the program.
constexpr std::array<std::string_view, 34> locking_functions = {"malloc",
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

bool contains_name(const auto& names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
}

// The common name of a symbol: __libc_malloc is malloc.
std::string_view strip_name_prefix(const char* name) {
    std::string_view result = name != nullptr ? name : "";
    result = result.substr(0, result.find('@'));
    result.remove_prefix(std::min(result.find_first_not_of('_'), result.size()));
    if (result.starts_with("libc_")) result.remove_prefix(5);
    return result;
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
    std::vector<std::uint64_t> pcs;  // innermost first; in callers, an address within the call
    bool is_complete = false;
};

constexpr std::size_t max_frames = 4096;

int append_frame(Dwfl_Frame* frame, void* context) {
    auto& frames = *static_cast<Frames*>(context);
    Dwarf_Addr pc = 0;
    bool is_activation = false;
    if (!dwfl_frame_pc(frame, &pc, &is_activation)) return DWARF_CB_ABORT;
    if (pc == 0) return DWARF_CB_OK;
    frames.pcs.push_back(is_activation ? pc : pc - 1);
    return frames.pcs.size() < max_frames ? DWARF_CB_OK : DWARF_CB_ABORT;
}

std::uint64_t find_exported_function(Dwfl_Module* module, const char* name) {
    const int n = module != nullptr ? dwfl_module_getsymtab(module) : 0;
    for (int k = 0; k < n; ++k) {
        GElf_Sym symbol;
        GElf_Addr address = 0;
        const char* symbol_name =
            dwfl_module_getsym_info(module, k, &symbol, &address, nullptr, nullptr, nullptr);
        if (symbol_name == nullptr || symbol.st_shndx == SHN_UNDEF ||
            GELF_ST_TYPE(symbol.st_info) != STT_FUNC)
            continue;
        // "name" or "name@@VERSION"
        const std::size_t length = std::strlen(name);
        if (std::strncmp(symbol_name, name, length) == 0 &&
            (symbol_name[length] == 0 || symbol_name[length] == '@'))
            return address;
    }
    return 0;
}

}  // namespace

struct Process::State {
    Dwfl* dwfl = nullptr;
    std::string hooks_path;
    Dwfl_Module *libc = nullptr, *hooks = nullptr;
    std::map<Dwfl_Module*, Owner> owners;
    bool is_first = true, has_allocator = false;  // is_first: the next module is the program itself

    ~State() {
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
        } else if (find_exported_function(module, "malloc") != 0) {
            // In a program with its own allocator, function names identify threads in the
            // allocator.
            if (is_first) has_allocator = true;
            else owner = Owner::allocator;
        }
        is_first = false;
        owners[module] = owner;
    }

    Owner owner_of(Dwfl_Module* module) const {
        const auto entry = owners.find(module);
        return entry != owners.end() ? entry->second : Owner::program;
    }
};

Process::Process(pid_t pid, const std::string& hooks) : state_(std::make_unique<State>()) {
    state_->hooks_path = hooks;
    state_->dwfl = dwfl_begin(&callbacks);
    const auto add_module = [](Dwfl_Module* module, void**, const char* name, Dwarf_Addr,
                               void* context) {
        static_cast<State*>(context)->add(module, name);
        return static_cast<int>(DWARF_CB_OK);
    };
    if (state_->dwfl == nullptr || dwfl_linux_proc_report(state_->dwfl, pid) != 0 ||
        dwfl_report_end(state_->dwfl, nullptr, nullptr) != 0 ||
        dwfl_getmodules(state_->dwfl, add_module, state_.get(), 0) != 0 ||
        dwfl_linux_proc_attach(state_->dwfl, pid, true) != 0)
        throw Error(fmt::format("cannot read which objects process {} has loaded: {}", pid,
                                dwfl_errmsg(-1)));
}

Process::~Process() = default;

ThreadSafety Process::assess_thread(pid_t tid) const {
    Frames frames;
    frames.is_complete =
        dwfl_getthread_frames(state_->dwfl, tid, append_frame, &frames) == 0 && !frames.pcs.empty();
    ThreadSafety safety{
        .can_call = frames.is_complete, .can_patch = !frames.pcs.empty(), .is_in_hooks = false};
    bool is_outside_program = true;  // until the first frame of the program, from the innermost on
    bool is_waiting = false;
    for (const std::uint64_t& pc : frames.pcs) {
        Dwfl_Module* const module = dwfl_addrmodule(state_->dwfl, pc);
        const Owner owner = state_->owner_of(module);
        const std::string_view name =
            strip_name_prefix(module != nullptr ? dwfl_module_addrname(module, pc) : nullptr);
        const bool uses_function_names =
            owner == Owner::libc || (owner == Owner::program && state_->has_allocator);
        if (owner == Owner::hooks) safety.is_in_hooks = true;
        if (owner == Owner::loader || owner == Owner::allocator || owner == Owner::hooks ||
            (uses_function_names && contains_name(locking_functions, name)))
            safety.can_call = false;
        if ((owner == Owner::libc && name == "dl_iterate_phdr") ||
            (is_outside_program && owner == Owner::loader))
            safety.can_patch = false;
        if (is_outside_program && owner == Owner::program) {
            is_outside_program = false;
            if (&pc != &frames.pcs.front() && !is_waiting) safety.can_call = false;
        }
        if (is_outside_program) is_waiting |= contains_name(waiting_functions, name);
    }
    if (is_outside_program) safety.can_call = false;
    return safety;
}

std::uint64_t Process::find_in_libc(const char* name) const {
    return find_exported_function(state_->libc, name);
}
std::uint64_t Process::find_in_hooks(const char* name) const {
    return find_exported_function(state_->hooks, name);
}

}  // namespace assay::attach
