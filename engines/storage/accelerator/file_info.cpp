// Reads and adds the info keys of a file.
#include "storage/accelerator/file_info.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

namespace assay::storage {
namespace {

constexpr const char* use_key = "assay_io";
constexpr const char* until_key = "assay_io_until";
constexpr const char* count_key = "cb_nodes";
constexpr const char* list_key = "cb_config_list";

bool read_key(MPI_Info info, const char* key, std::string& value) {
    if (info == MPI_INFO_NULL) return false;
    char text[MPI_MAX_INFO_VAL + 1]{};
    int is_set = 0;
    PMPI_Info_get(info, key, MPI_MAX_INFO_VAL, text, &is_set);
    value = text;
    return is_set != 0;
}

bool read_number(const std::string& text, int& number) {
    const auto end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, number);
    return result.ec == std::errc() && result.ptr == end;
}

// The ranks that a cb_config_list allows, in ROMIO's order: "*:N" is N ranks of each node, "*:*"
// all ranks. Empty for a list of host names: which ranks it means is ROMIO's own business.
std::vector<int> allowed_ranks(const std::string& list, const std::vector<int>& nodes) {
    std::vector<int> ranks;
    if (list == "*:*") {
        ranks.resize(nodes.size());
        std::iota(ranks.begin(), ranks.end(), 0);
        return ranks;
    }
    int per_node = 1;
    if (!list.empty() && (list.compare(0, 2, "*:") != 0 || !read_number(list.substr(2), per_node)))
        return ranks;
    std::vector<std::pair<int, std::vector<int>>> by_node;  // in the order of their first ranks
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
        auto entry = std::find_if(by_node.begin(), by_node.end(),
                                  [&](const auto& node) { return node.first == nodes[rank]; });
        if (entry == by_node.end()) entry = by_node.insert(entry, {nodes[rank], {}});
        if (static_cast<int>(entry->second.size()) < per_node)
            entry->second.push_back(static_cast<int>(rank));
    }
    for (const auto& [node, of_node] : by_node)
        ranks.insert(ranks.end(), of_node.begin(), of_node.end());
    return ranks;
}

}  // namespace

InfoKeys read_info_keys(MPI_Info info, const Settings& settings, const std::string& name) {
    InfoKeys keys{settings.covers(name), settings.until_memory, {}, {}};
    std::string value;
    if (read_key(info, count_key, value) && !read_number(value, keys.aggregators.count))
        keys.aggregators.count = 0;
    read_key(info, list_key, keys.aggregators.list);
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

MPI_Info info_of_one_rank(MPI_Info info) {
    if (info == MPI_INFO_NULL) return info;
    MPI_Info copy = MPI_INFO_NULL;
    PMPI_Info_dup(info, &copy);
    std::string list;
    if (read_key(copy, list_key, list)) PMPI_Info_delete(copy, list_key);
    return copy;
}

void set_aggregators(MPI_Info info, const AggregatorHints& hints, const std::vector<int>& nodes) {
    constexpr const char* ranks_key = "romio_aggregator_list";
    if (!hints.list.empty()) PMPI_Info_set(info, list_key, hints.list.c_str());
    std::string value;
    if (!read_key(info, "romio_cb_read", value) || !read_key(info, count_key, value)) return;
    auto ranks = allowed_ranks(hints.list, nodes);
    if (hints.count > 0 && hints.count < static_cast<int>(ranks.size()))
        ranks.resize(static_cast<std::size_t>(hints.count));
    std::string text;
    for (const int rank : ranks) {
        const std::string next = std::to_string(rank) + " ";
        if (text.size() + next.size() >= MPI_MAX_INFO_VAL) break;
        text += next;
    }
    const bool has_ranks = read_key(info, ranks_key, value);
    if (ranks.empty()) {
        PMPI_Info_delete(info, count_key);
        if (has_ranks) PMPI_Info_delete(info, ranks_key);
        return;
    }
    PMPI_Info_set(info, count_key, std::to_string(ranks.size()).c_str());
    if (has_ranks) PMPI_Info_set(info, ranks_key, text.c_str());
}

}  // namespace assay::storage
