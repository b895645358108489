// assay-store: lists what the stores of a node hold, and writes it into the file system after a job
// that was aborted.
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/main.hpp"
#include "storage/store/recover.hpp"

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

// A store says which files to write, so whoever made it must be the user whose rights are used.
void check_owner(const std::string& path) {
    struct stat info{};
    if (stat(path.c_str(), &info) || S_ISCHR(info.st_mode) || info.st_uid == geteuid()) return;
    const passwd* owner = getpwuid(info.st_uid);
    const std::string name = owner ? owner->pw_name : fmt::format("user {}", info.st_uid);
    throw Error(fmt::format("{} is owned by {}", path, name), "run the command as that user");
}

std::unique_ptr<Store> open_store(const std::string& path) {
    check_owner(path);
    Failure failure;
    auto store = Store::attach(path, false, failure);
    if (!store) throw Error(failure.what);
    return store;
}

void print_undrained(const std::string& path) {
    const auto store = open_store(path);
    const bool is_used = in_use(*store);
    auto result = as_json(is_used ? UndrainedData{} : undrained_data(*store));
    const auto& superblock = store->superblock();
    result.update({{"store", path},
                   {"job", superblock.job},
                   {"host", superblock.host},
                   {"created", superblock.created},
                   {"size", superblock.bytes},
                   {"ranks", superblock.ranks},
                   {"persistent", superblock.persistent != 0},
                   {"in_use", is_used}});
    fmt::print("{}\n", result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void check_same_boot(const Store& store, const RecoveryOptions& options) {
    if (store.persistent() || options.force || !store.is_of_another_boot()) return;
    throw Error(store.path() +
                    " is from before the machine was restarted and is not in persistent "
                    "memory: its data may be incomplete",
                "write them with --force, or drop them with --discard --force");
}

void recover_store(const std::string& path, const RecoveryOptions& options) {
    auto store = open_store(path);
    if (in_use(*store))
        throw Error(path + " is in use by a running job", "recover it when the job has ended");
    check_same_boot(*store, options);
    const Recovery recovery = recover(*store, options);
    auto result = as_json(recovery.found);
    result.update({{"store", path},
                   {"kept", as_json(recovery.kept)},
                   {"kept_torn", recovery.torn},
                   {"discarded", recovery.discarded}});
    fmt::print("{}\n", result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    if (recovery.kept.empty() && !recovery.torn) store->remove();
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("List and recover stores of node-local memory.");
    app.require_subcommand(1);
    std::vector<std::string> paths;
    RecoveryOptions options;
    auto* list_verb = app.add_subcommand(
        "list", "print what each store holds that the file system lacks, as JSON lines");
    list_verb->add_option("stores", paths, "stores: files or /dev/dax devices")->required();
    auto* recover_verb = app.add_subcommand("recover",
                                            "write it into the file system; print what was found "
                                            "and what is kept as JSON lines; remove "
                                            "a store of which nothing is kept");
    recover_verb->add_option("stores", paths, "stores: files or /dev/dax devices")->required();
    recover_verb->add_option("--threads", options.threads, "number of writing threads")
        ->check(CLI::Range(1, 256));
    recover_verb->add_flag("--force", options.force, "write files that were changed since the job");
    recover_verb->add_flag("--discard", options.discard, "drop what cannot be written");
    CLI11_PARSE(app, argc, argv);
    return report_errors("assay-store", [&] {
        for (const auto& path : paths)
            list_verb->parsed() ? print_undrained(path) : recover_store(path, options);
        return 0;
    });
}
