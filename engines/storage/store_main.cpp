// The main program of assay-store. It lists the stores of a node and the data in them, recovers
// them (writes the data of a job that was aborted into the file system), drops them, and runs the
// background drain of a job. It prints one JSON line for each store. It also tells into which
// programs the accelerator can be loaded.
#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.hpp"
#include "core/main.hpp"
#include "preload/obstacle.hpp"
#include "storage/store/background_drain.hpp"
#include "storage/store/kept.hpp"
#include "storage/store/other_jobs.hpp"
#include "storage/store/progress.hpp"
#include "storage/store/recover.hpp"
#include "storage/store/superblock.hpp"

using namespace assay;
using namespace assay::storage;

namespace {

nlohmann::json as_json(const std::vector<UndrainedFile>& files) {
    auto list = nlohmann::json::array();
    for (const auto& file : files)
        list.push_back({{"path", file.path},
                        {"records", file.records},
                        {"bytes", file.bytes},
                        {"condition", name_of(file.condition)},
                        {"error", file.error ? std::strerror(file.error) : ""}});
    return list;
}

nlohmann::json as_json(const UndrainedData& undrained) {
    return {{"records", undrained.records},
            {"bytes", undrained.bytes},
            {"torn", undrained.torn},
            {"files", as_json(undrained.files)}};
}

std::string owner_of(const std::string& path) {
    struct stat info{};
    if (stat(path.c_str(), &info)) return {};
    const passwd* owner = getpwuid(info.st_uid);
    return owner ? owner->pw_name : std::to_string(info.st_uid);
}

// Only for what is printed: what is opened is checked on its descriptor.
bool seems_of_another_user(const std::string& path) {
    struct stat info{};
    return stat(path.c_str(), &info) == 0 && !S_ISCHR(info.st_mode) && info.st_uid != geteuid();
}

std::unique_ptr<Store> open_store(const std::string& path) {
    Failure failure;
    auto store = Store::attach(path, false, failure);
    if (!store) throw Error(failure.message);
    return store;
}

// A store names the files that recovery writes, so others than the user must not have written it.
// attach() refuses another user's file.
void check_writers(const Store& store) {
    if (!is_open_device(store.descriptor())) return;
    throw Error(
        store.path() + " may be written by other users, who can plant data in it",
        "if the store is yours, chmod 600 as the device's owner, and recover it again; else "
        "assay io drop --discard");
}

// For a store in use: the files with an error, and the sum of the bytes that are not written.
nlohmann::json undrained_in_use(const Store& store) {
    std::vector<UndrainedFile> failed;
    for (const auto k : store.assigned_slots()) {
        const auto& slot = store.file(k);
        if (!slot.error.load() || slot.deleted.load()) continue;
        UndrainedFile file;
        file.path.assign(slot.path, strnlen(slot.path, path_limit));
        file.condition = FileCondition::failed;
        file.error = static_cast<int>(slot.error.load());
        failed.push_back(file);
    }
    const StoredData pending = pending_data(store);
    return {{"records", 0}, {"bytes", pending.bytes}, {"torn", 0}, {"files", as_json(failed)}};
}

// The state of a store. running: a job has it open; draining: only its background drain has it
// open; kept: it is for a later job; left: no process has it open.
const char* state_of(const Store& store, bool is_used) {
    if (!is_used) return store.superblock().phase.load() == Phase::kept ? "kept" : "left";
    const bool ended = store.superblock().phase.load() == Phase::detached;
    return ended && background_drain_runs(store) ? "draining" : "running";
}

// The reason why this program cannot read an undamaged store; empty if it can.
std::string why_unreadable(const std::string& path) {
    if (seems_of_another_user(path)) return fmt::format("only {} can read it", owner_of(path));
    if (is_incomplete(path)) return "a job creates it, or ended before it was complete";
    const std::uint32_t version = version_of(path);
    if (!version || version == store_version) return {};
    return fmt::format("it has version {}, this Assay reads version {}", version, store_version);
}

void print_store(const std::string& path) {
    if (const auto reason = why_unreadable(path); !reason.empty()) {
        const nlohmann::json result{{"store", path},
                                    {"state", "unreadable"},
                                    {"owner", owner_of(path)},
                                    {"reason", reason}};
        fmt::print("{}\n", result.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
        return;
    }
    const auto store = open_store(path);
    const bool is_used = is_in_use(*store);
    auto result = is_used ? undrained_in_use(*store) : as_json(undrained_data(*store));
    const auto& superblock = store->superblock();
    const StoredData data_in_store = stored_data(*store);
    result.update({{"store", path},
                   {"state", state_of(*store, is_used)},
                   {"owner", owner_of(path)},
                   {"name", superblock.keep},
                   {"held_bytes", data_in_store.bytes},
                   {"held_files", data_in_store.files},
                   {"job", superblock.job},
                   {"host", superblock.host},
                   {"created", superblock.created},
                   {"size", superblock.bytes},
                   {"ranks", superblock.ranks},
                   {"persistent", superblock.persistent != 0}});
    fmt::print("{}\n", result.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

void check_same_boot(const Store& store, const RecoveryOptions& options) {
    if (store.persistent() || options.force || !store.is_from_earlier_boot()) return;
    throw Error(store.path() +
                    " is from before the machine was restarted and is not in persistent "
                    "memory: its data may be incomplete",
                "write them with --force, or drop them with --discard --force");
}

void recover_store(const std::string& path, const RecoveryOptions& options) {
    auto store = open_store(path);
    check_writers(*store);
    if (is_in_use(*store))
        throw Error(path + " is in use by a running job", "recover it when the job has ended");
    if (store->superblock().phase.load() == Phase::kept)
        throw Error(fmt::format("{} is kept as {}: the file system has all of it", path,
                                store->superblock().keep),
                    fmt::format("assay io drop {}", store->superblock().keep));
    check_same_boot(*store, options);
    const Recovery recovery = recover(*store, options);
    auto result = as_json(recovery.undrained_before);
    result.update({{"store", path},
                   {"kept", as_json(recovery.kept)},
                   {"kept_torn", recovery.torn},
                   {"discarded", recovery.discarded}});
    fmt::print("{}\n", result.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
    if (!recovery.kept.empty() || recovery.torn) return;
    store->remove();
    remove_dead_links();
}

// Removes a store whose contents cannot be read: they are of another version, or incomplete.
void erase(const std::string& path) {
    Failure failure;
    erase_store(path, failure);
    if (failure) throw Error(failure.message);
    remove_dead_links();
}

// Drops a store of another layout version.
void drop_other_version(const std::string& path, std::uint32_t version, bool discard) {
    if (!discard)
        throw Error(fmt::format("{} has version {}: whether the file system has its data is not "
                                "known",
                                path, version),
                    "recover it with the Assay that made it, or drop it with --discard");
    erase(path);
}

void drop_store(const std::string& path, bool discard) {
    if (is_incomplete(path)) return erase(path);
    const std::uint32_t version = version_of(path);
    if (version && version != store_version) return drop_other_version(path, version, discard);
    const auto store = open_store(path);
    if (is_in_use(*store))
        throw Error(path + " is in use by a running job or its background drain",
                    "drop it when they have ended");
    const auto undrained = undrained_data(*store);
    if (!discard && (!undrained.files.empty() || undrained.torn))
        throw Error(undrained.bytes || undrained.torn
                        ? fmt::format("{} holds {} bytes that are not in the file system", path,
                                      undrained.bytes)
                        : fmt::format("{} holds data that were not synced to the medium", path),
                    fmt::format("assay io recover {}, or drop them with --discard", path));
    store->remove();
    remove_dead_links();
}

// Prints why the accelerator cannot be loaded into a program; an empty reason: it can.
void print_obstacle(const std::string& program) {
    const nlohmann::json result{
        {"program", program},
        {"reason", preload::reason(preload::obstacle_of_command(program.c_str()))}};
    fmt::print("{}\n", result.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

// Closes all descriptors but the standard ones; closefrom() came with glibc 2.34.
void close_descriptors() {
    std::vector<int> open;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
        open.push_back(std::stoi(entry.path().filename().string()));
    for (const int fd : open)
        if (fd > STDERR_FILENO) close(fd);  // the folder's own is closed already
}

// Gives up everything that was inherited from the job that has started this process: descriptors,
// working directory, CPU affinity, and the soft limit on open files.
void detach_from_job() {
    close_descriptors();
    if (chdir("/")) throw Error("cannot change to /");
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    sched_setaffinity(0, sizeof all, &all);  // an error is ignored: the drain is only slower
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

// Forks: the parent exits, and the child drains until the store is removed.
int drain_in_background(const std::string& path, const BackgroundSettings& settings) {
    detach_from_job();
    Failure failure;
    const auto store = Store::attach(path, true, failure);
    if (!store) throw Error(failure.message);
    const pid_t child = fork();
    if (child < 0) throw Error(fmt::format("cannot start a process: {}", std::strerror(errno)));
    if (child) _exit(0);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
    return BackgroundDrain(*store, settings).run() ? 0 : exit_unusable;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("List and recover stores of node-local memory.");
    app.require_subcommand(1);
    std::vector<std::string> paths;
    RecoveryOptions options;
    auto* list_verb = app.add_subcommand(
        "list", "print the data of each store that the file system lacks, as JSON lines");
    list_verb->add_option("stores", paths, "stores: files or /dev/dax devices")->required();
    auto* recover_verb = app.add_subcommand(
        "recover",
        "write the data of stores into the file system; print the data that were found and those "
        "that stay in the store as JSON lines; remove a store in which no data stay");
    recover_verb->add_option("stores", paths, "stores: files or /dev/dax devices")->required();
    recover_verb->add_option("--threads", options.threads, "number of writing threads")
        ->check(CLI::Range(1, 256));
    recover_verb->add_flag("--force", options.force, "write files that were changed since the job");
    recover_verb->add_flag("--discard", options.discard, "drop what cannot be written");
    auto* drop_verb =
        app.add_subcommand("drop", "remove stores whose data are all in the file system");
    drop_verb->add_option("stores", paths, "stores: files or /dev/dax devices")->required();
    drop_verb->add_flag("--discard", options.discard, "drop data that the file system lacks, too");
    auto* obstacles_verb = app.add_subcommand(
        "obstacles", "print why the accelerator cannot be loaded into programs, as JSON lines");
    obstacles_verb->add_option("programs", paths, "names or paths of programs")->required();
    BackgroundSettings background;
    std::string store;
    auto* background_verb = app.add_subcommand(
        "background", "drain a running job's store, and end when the file system has all its data");
    background_verb->add_option("store", store, "the store")->required();
    background_verb->add_option("--threads", background.threads, "number of writing threads")
        ->check(CLI::Range(1, 256));
    background_verb->add_option("--lag", background.lag_ms, "delay while the job runs, ms");
    background_verb->add_option("--retry", background.retry_s,
                                "how long failed writes of a file are repeated, s");
    CLI11_PARSE(app, argc, argv);
    std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` fails, and the file is named
    return report_errors("assay-store", [&] {
        if (background_verb->parsed()) return drain_in_background(store, background);
        for (const auto& path : paths)
            if (obstacles_verb->parsed()) print_obstacle(path);
            else if (list_verb->parsed()) print_store(path);
            else if (drop_verb->parsed()) drop_store(path, options.discard);
            else recover_store(path, options);
        return 0;
    });
}
