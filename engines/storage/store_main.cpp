// assay-store: what lies in the stores of a node, and its way into the file system when a job could
// not see to it.
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

nlohmann::json as_json(const Contents& found) {
    auto files = nlohmann::json::array();
    for (const auto& file : found.files)
        files.push_back({{"path", file.path},
                         {"records", file.records},
                         {"bytes", file.bytes},
                         {"gone", file.gone}});
    return {
        {"records", found.records}, {"bytes", found.bytes}, {"torn", found.torn}, {"files", files}};
}

std::unique_ptr<Store> attached(const std::string& path) {
    Failure failure;
    auto store = Store::attach(path, failure);
    if (!store) throw Error(failure.what);
    return store;
}

void show(const std::string& path) {
    const auto store = attached(path);
    const bool used = in_use(*store);
    auto line = as_json(used ? Contents{} : contents(*store));
    const auto& super = store->super();
    line.update({{"store", path},
                 {"job", super.job},
                 {"host", super.host},
                 {"created", super.created},
                 {"size", super.bytes},
                 {"ranks", super.ranks},
                 {"persistent", super.persistent != 0},
                 {"in_use", used}});
    fmt::print("{}\n", line.dump());
}

void rescue(const std::string& path, unsigned threads, bool keep) {
    auto store = attached(path);
    if (in_use(*store))
        throw Error(path + " is in use by a running job", "recover it when the job has ended");
    int error = 0;
    auto line = as_json(recover(*store, threads, error));
    line.update({{"store", path},
                 {"error", error ? std::strerror(error) : ""},
                 {"discarded", store->super().discarded.load()}});
    fmt::print("{}\n", line.dump());
    if (error)
        throw Error(fmt::format("{}: the file system refused: {}", path, std::strerror(error)),
                    "nothing is lost: the store still holds what is missing");
    if (!keep) store->remove();
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Stores of node-local memory: what they hold, and its rescue.");
    app.require_subcommand(1);
    std::vector<std::string> paths;
    unsigned threads = 4;
    bool keep = false;
    auto* list = app.add_subcommand(
        "list", "what each store holds that is not in the file system, as JSON lines");
    list->add_option("stores", paths, "stores: files or /dev/dax devices")->required();
    auto* recover_verb = app.add_subcommand("recover", "write it there, then remove the store");
    recover_verb->add_option("stores", paths, "stores: files or /dev/dax devices")->required();
    recover_verb->add_option("--threads", threads, "that write at a time")
        ->check(CLI::Range(1, 256));
    recover_verb->add_flag("--keep", keep, "leave the store where it is");
    CLI11_PARSE(app, argc, argv);
    return report_errors("assay-store", [&] {
        for (const auto& path : paths) list->parsed() ? show(path) : rescue(path, threads, keep);
        return 0;
    });
}
