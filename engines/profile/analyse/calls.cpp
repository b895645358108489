#include "profile/analyse/calls.hpp"

#include <regex>
#include <string_view>

namespace assay::heap {
namespace {

const Place at_start{"(start)", "", 0, "", false}, unread{"(unknown callers)", "", 0, "", false};

// The name alone of "T ns::name<T>(T)".
std::string_view qualified_name(std::string_view whole) {
    constexpr std::string_view anonymous = "(anonymous namespace)";
    std::size_t begin = 0;
    int depth = 0;
    for (std::size_t k = 0; k < whole.size(); ++k) {
        if (whole.substr(k).starts_with(anonymous)) k += anonymous.size();
        const char c = k < whole.size() ? whole[k] : '(';
        if (c == '<') ++depth;
        else if (c == '>') --depth;
        else if (c == ' ' && depth == 0) begin = k + 1;
        else if (c == '(' && depth == 0) return whole.substr(begin, k - begin);
    }
    return whole.substr(begin);
}

// Allocation functions of C, C++ and glib, and the standard library, which asks for its user.
bool only_hands_on(const std::string& function) {
    static const std::regex names("^operator (new|delete)|^(.*_)?(malloc|calloc|realloc|memalign|strdup)$|^__libc_|^g_(malloc|realloc)");
    if (std::regex_search(function, names)) return true;
    const std::string_view name = qualified_name(function);
    return name.starts_with("std::") || name.starts_with("__gnu_cxx::");
}

}  // namespace

CallTree::CallTree(const std::vector<stack::Node>& stacks, Symbols& symbols) {
    unknown_ = child(none, place_of(unread));
    at_.reserve(stacks.size());
    for (std::uint32_t id = 0; id < stacks.size(); ++id) {
        if (id == stack::complete_root) at_.push_back(child(none, place_of(at_start)));
        else if (id <= stack::lost_root || stacks[id].address <= stack::unused_address) at_.push_back(unknown_);
        else add(stacks[id], symbols);
    }
}

void CallTree::add(const stack::Node& node, Symbols& symbols) {
    std::uint32_t at = node.parent == stack::complete_root ? none : node_of(node.parent);
    const std::vector<Place>& places = symbols.find(node.address);
    for (auto place = places.rbegin(); place != places.rend(); ++place) at = child(at, place_of(*place));
    at_.push_back(at);
}

std::uint32_t CallTree::child(std::uint32_t parent, std::uint32_t place) {
    const std::uint64_t key = (static_cast<std::uint64_t>(parent + 1) << 32) | place;
    const auto [found, is_new] = children_.try_emplace(key, static_cast<std::uint32_t>(nodes_.size()));
    if (is_new) nodes_.push_back({parent, place});
    return found->second;
}

std::uint32_t CallTree::place_of(const Place& place) {
    const std::string function = place.function + '\0' + place.module;
    const std::string key = function + '\0' + place.file + '\0' + std::to_string(place.line);
    const auto [found, is_new] = place_numbers_.try_emplace(key, static_cast<std::uint32_t>(places_.size()));
    if (is_new) {
        const std::uint32_t first = functions_.try_emplace(function, found->second).first->second;
        places_.push_back({&place, first, first == found->second ? only_hands_on(place.function) : places_[first].hands_on});
    }
    return found->second;
}

std::uint32_t CallTree::asker(std::uint32_t node) const {
    for (std::uint32_t at = node; at != none; at = nodes_[at].parent)
        if (!places_[nodes_[at].place].hands_on) return nodes_[at].place;
    return nodes_[node].place;
}

}  // namespace assay::heap
