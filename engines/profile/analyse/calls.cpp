#include "profile/analyse/calls.hpp"

#include <algorithm>
#include <regex>
#include <string_view>

#include "profile/heap/python_nodes.hpp"

namespace assay::heap {
namespace {

const Place at_start{"(start)", "", 0, "", false}, unread{"(unknown callers)", "", 0, "", false},
    untold{"(a Python function)", "", 0, "", false};

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

// In an interpreter: what stands outside of all Python functions, and asks for itself.
bool is_outermost(const std::string& function) {
    static const std::regex names(
        "^main$|^_?Py_(BytesMain|Main|RunMain|Initialize|Finalize|NewInterpreter|EndInterpreter)");
    return std::regex_search(function, names);
}

}  // namespace

bool only_hands_on(const std::string& function) {
    static const std::regex names(
        "^operator "
        "(new|delete)|^[A-Za-z0-9_]*(malloc|calloc|realloc|reallocarray|memalign|strn?dup)[0-9]?$|^"
        "__libc_|^g_(malloc|realloc)");
    if (std::regex_search(function, names)) return true;
    const std::string_view name = qualified_name(function);
    return name.starts_with("std::") || name.starts_with("__gnu_cxx::");
}

CallTree::CallTree(const std::vector<stack::Node>& stacks, const Python& python, Symbols& symbols)
    : stacks_(stacks), python_(python), symbols_(symbols) {
    // By the object's name: an interpreter may also be part of a program whose own functions are
    // nobody else's.
    static const std::regex interpreter("^(lib)?python[0-9.]*([a-z]*$|[a-z]*\\.so)");
    for (const std::uint64_t address : python.evals)
        if (const std::string& module = symbols.find(address).front().module;
            std::regex_search(module.substr(module.rfind('/') + 1), interpreter))
            interpreters_.insert(module);
    unknown_ = child(none, place_of(unread));
    at_.assign(stacks.size(), none);
    for (stack::StackId id = 0; id < stacks.size(); ++id)
        if (id <= stack::lost_root || python.named.empty() || python.named[id]) find(id);
}

std::uint32_t CallTree::find(stack::StackId stack) {
    if (at_[stack] != none) return at_[stack];
    const auto& [parent, address] = stacks_[stack];
    std::uint32_t at = unknown_;
    if (stack == stack::complete_root) at = child(none, place_of(at_start));
    else if (stack > stack::lost_root && tag_of(address) == joined_tag)
        at = joined(parent, named_in(address));
    else if (stack > stack::lost_root && address > stack::unused_address && !is_python(address))
        at = append(outside(parent), symbols_.find(address));
    return at_[stack] = at;
}

// The C frames from `native` outwards, each that runs Python followed inwards by its frames: the
// innermost such frame by the innermost of them. Where the C stack could not be read to its end,
// what is left of Python comes first.
std::uint32_t CallTree::joined(stack::StackId native, stack::StackId frames) {
    if (!is_frame(frames) || native >= stacks_.size())
        return outside(native < stacks_.size() ? native : stack::lost_root);
    const auto [known, is_new] =
        joined_.try_emplace(static_cast<std::uint64_t>(native) << 32 | frames, unknown_);
    if (!is_new) return known->second;
    const stack::Node& node = stacks_[native];
    std::uint32_t at = none;
    if (native <= stack::lost_root || node.address <= stack::unused_address ||
        is_python(node.address)) {
        stack::StackId rest = frames;
        at = append_frames(outside(native), take_frames(rest, true));
    } else if (runs_python(node.address)) {
        stack::StackId outer = frames;
        const std::vector<stack::StackId> own = take_frames(outer, false);
        at = append_frames(append(joined(node.parent, outer), symbols_.find(node.address)), own);
    } else {
        at = append(joined(node.parent, frames), symbols_.find(node.address));
    }
    return joined_[static_cast<std::uint64_t>(native) << 32 | frames] = at;
}

std::uint32_t CallTree::append(std::uint32_t at, const std::vector<Place>& places) {
    for (auto place = places.rbegin(); place != places.rend(); ++place)
        at = child(at, place_of(*place));
    return at;
}

// Innermost first, as they are taken.
std::uint32_t CallTree::append_frames(std::uint32_t at, const std::vector<stack::StackId>& frames) {
    for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
        const auto known = python_.places.find(named_in(stacks_[*frame].address));
        at = child(
            at, known != python_.places.end() ? place_of(known->second, true) : place_of(untold));
    }
    return at;
}

// From the innermost one on, all or those that one C frame runs.
std::vector<stack::StackId> CallTree::take_frames(stack::StackId& frames, bool all) const {
    std::vector<stack::StackId> taken;
    for (bool is_entry = false; is_frame(frames) && (all || !is_entry);) {
        taken.push_back(frames);
        is_entry = (stacks_[frames].address & entry_bit) != 0;
        frames = stacks_[frames].parent;
    }
    return taken;
}

bool CallTree::is_frame(stack::StackId id) const {
    return id < stacks_.size() && tag_of(stacks_[id].address) == frame_tag;
}

// Stacks that could not be read to their end tell nothing of their frames: these are known by name.
bool CallTree::runs_python(std::uint64_t address) {
    if (python_.evals.contains(address)) return true;
    return std::ranges::any_of(symbols_.find(address), [](const Place& place) {
        return place.function == "_PyEval_EvalFrameDefault";
    });
}

// The interpreter asks for memory in the name of whom it runs.
bool CallTree::hands_on(const Place& place) const {
    return only_hands_on(place.function) ||
           (interpreters_.contains(place.module) && !is_outermost(place.function));
}

std::uint32_t CallTree::child(std::uint32_t parent, std::uint32_t place) {
    const std::uint64_t key = (static_cast<std::uint64_t>(parent + 1) << 32) | place;
    const auto [found, is_new] =
        children_.try_emplace(key, static_cast<std::uint32_t>(nodes_.size()));
    if (is_new) nodes_.push_back({parent, place});
    return found->second;
}

std::uint32_t CallTree::place_of(const Place& place, bool is_python) {
    if (const auto known = known_places_.find(&place); known != known_places_.end())
        return known->second;
    const std::string function = place.function + '\0' + place.module;
    const std::string key = function + '\0' + place.file + '\0' + std::to_string(place.line);
    const auto [found, is_new] =
        place_numbers_.try_emplace(key, static_cast<std::uint32_t>(places_.size()));
    if (is_new) {
        const std::uint32_t first = functions_.try_emplace(function, found->second).first->second;
        places_.push_back(
            {&place, first,
             first == found->second ? !is_python && hands_on(place) : places_[first].hands_on});
    }
    return known_places_[&place] = found->second;
}

std::uint32_t CallTree::asker(std::uint32_t node) const {
    for (std::uint32_t at = node; at != none; at = nodes_[at].parent)
        if (!places_[nodes_[at].place].hands_on) return nodes_[at].place;
    return nodes_[node].place;
}

}  // namespace assay::heap
