// assay-store: lists what the stores of a node hold, and writes it into the file system after a job
// that was aborted.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/main.hpp"
#include "storage/store/recover.hpp"

using namespace assay;
using namespace assay::storage;

namespace {

nlohmann::json as_json(const UndrainedData& undrained) {
    auto files = nlohmann::json::array();
    for (const auto& file : undrained.files)
        files.push_back({{"path", file.path},
                         {"records", file.records},
                         {"bytes", file.bytes},
                         {"gone", file.gone}});
    return {{"records", undrained.records},
            {"bytes", undrained.bytes},
            {"torn", undrained.torn},
            {"files", files}};
}

std::unique_ptr<Store> open_store(const std::string& path) {
    Failure failure;
    auto store = Store::attach(path, failure);
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
    fmt::print("{}\n", result.dump());
}

void recover_store(const std::string& path, unsigned threads, bool keep) {
    auto store = open_store(path);
    if (in_use(*store))
        throw Error(path + " is in use by a running job", "recover it when the job has ended");
    int error = 0;
    auto result = as_json(recover(*store, threads, error));
    result.update({{"store", path},
                   {"error", error ? std::strerror(error) : ""},
                   {"discarded", store->superblock().discarded.load()}});
    fmt::print("{}\n", result.dump());
    if (error)
        throw Error(
            fmt::format("{}: the file system refused: {}", path, std::strerror(error)),
            "nothing is lost: the store still holds the data; make space and recover again");
    if (!keep) store->remove();
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("List and recover stores of node-local memory.");
    app.require_subcommand(1);
    std::vector<std::string> paths;
    unsigned threads = 4;
    bool keep = false;
    auto* list_verb = app.add_subcommand(
        "list", "print what each store holds that the file system lacks, as JSON lines");
    list_verb->add_option("stores", paths, "stores: files or /dev/dax devices")->required();
    auto* recover_verb =
        app.add_subcommand("recover", "write it into the file system, then remove the store");
    recover_verb->add_option("stores", paths, "stores: files or /dev/dax devices")->required();
    recover_verb->add_option("--threads", threads, "number of writing threads")
        ->check(CLI::Range(1, 256));
    recover_verb->add_flag("--keep", keep, "do not remove the store");
    CLI11_PARSE(app, argc, argv);
    return report_errors("assay-store", [&] {
        for (const auto& path : paths)
            list_verb->parsed() ? print_undrained(path) : recover_store(path, threads, keep);
        return 0;
    });
}
