// Builds the call tree by function and line, and merges C and Python stacks.
#include "profile/analyse/call_tree.hpp"

#include <algorithm>
#include <climits>
#include <regex>
#include <string_view>

#include "profile/heap/python_nodes.hpp"

namespace assay::heap {
namespace {

const Location start{"(start)", "", 0, "", false},
    unknown_callers{"(unknown callers)", "", 0, "", false},
    unknown_python{"(a Python function)", "", 0, "", false};

// The qualified name in a signature: "ns::name<T>" in "T ns::name<T>(T)".
std::string_view qualified_name(std::string_view signature) {
    constexpr std::string_view anonymous = "(anonymous namespace)";
    std::size_t begin = 0;
    int depth = 0;
    for (std::size_t k = 0; k < signature.size(); ++k) {
        if (signature.substr(k).starts_with(anonymous)) k += anonymous.size();
        const char c = k < signature.size() ? signature[k] : '(';
        if (c == '<') ++depth;
        else if (c == '>') --depth;
        else if (c == ' ' && depth == 0) begin = k + 1;
        else if (c == '(' && depth == 0) return signature.substr(begin, k - begin);
    }
    return signature.substr(begin);
}

// Whether a function of an interpreter runs outside of all Python functions. Its allocations are
// its own.
bool is_outermost(const std::string& function) {
    static const std::regex names(
        "^main$|^_?Py_(BytesMain|Main|RunMain|Initialize|Finalize|NewInterpreter|EndInterpreter)");
    return std::regex_search(function, names);
}

}  // namespace

bool is_allocator_function(const std::string& function) {
    constexpr std::size_t max_name_bytes = 1000;  // std::regex recurses for each character
    static const std::regex names(
        "^operator "
        "(new|delete)|^[A-Za-z0-9_]*(malloc|calloc|realloc|reallocarray|memalign|strn?dup)[0-9]?$|^"
        "__libc_|^g_(malloc|realloc)");
    if (function.size() <= max_name_bytes && std::regex_search(function, names)) return true;
    const std::string_view name = qualified_name(function);
    return name.starts_with("std::") || name.starts_with("__gnu_cxx::");
}

CallTree::CallTree(const std::vector<stack::Node>& stacks, const PythonMetadata& python,
                   Symbols& symbols)
    : stacks_(stacks), python_(python), symbols_(symbols) {
    // Only objects with the name of an interpreter count. A program that embeds one allocates for
    // itself.
    static const std::regex interpreter("^(lib)?python[0-9.]*([a-z]*$|[a-z]*\\.so)");
    for (const std::uint64_t address : python.eval_addresses)
        if (const std::string& module = symbols.find(address).front().module;
            module.size() <= PATH_MAX &&
            std::regex_search(module.substr(module.rfind('/') + 1), interpreter))
            interpreters_.insert(module);
    unknown_node_ = child(none, location_number(unknown_callers));
    node_of_stack_.assign(stacks.size(), none);
    for (stack::StackId id = 0; id < stacks.size(); ++id)
        if (id <= stack::lost_root || python.named_stacks.empty() || python.named_stacks[id])
            resolve_stack(id);
}

// Returns the tree node of a stack. Iterative, since stacks may be very deep.
std::uint32_t CallTree::resolve_stack(stack::StackId stack) {
    std::vector<stack::StackId> calls;  // unresolved calls, innermost first
    std::uint32_t node = none;
    for (; stack != stack::complete_root || calls.empty(); stack = stacks_[stack].parent) {
        node = node_of_stack_[stack];
        if (node != none) break;
        if (!is_call(stack)) {
            node = node_of_stack_[stack] = resolve_root(stack);
            break;
        }
        calls.push_back(stack);
    }
    if (stack == stack::complete_root && !calls.empty()) node = none;
    for (auto call = calls.rbegin(); call != calls.rend(); ++call)
        node = node_of_stack_[*call] = append(node, symbols_.find(stacks_[*call].address));
    return node;
}

// Whether a node of the stack tree is a call of a C function, with its caller as parent.
bool CallTree::is_call(stack::StackId stack) const {
    const std::uint64_t address = stacks_[stack].address;
    return stack > stack::lost_root && address > stack::unused_address && !is_python(address);
}

// The tree node of a stack node that is not a call: a root, or a joined C and Python stack.
std::uint32_t CallTree::resolve_root(stack::StackId stack) {
    const auto& [parent, address] = stacks_[stack];
    if (stack == stack::complete_root) return child(none, location_number(start));
    if (stack > stack::lost_root && tag_of(address) == joined_tag)
        return join_stacks(parent, node_number(address));
    return unknown_node_;
}

// Merges a C stack and a Python stack. From the innermost frame outwards, each C frame that runs
// Python gets the next Python frames up to an entry frame as its callees. If the C stack is
// incomplete, the remaining Python frames are outermost.
std::uint32_t CallTree::join_stacks(stack::StackId native, stack::StackId frames) {
    struct Step {
        std::uint64_t key;
        stack::StackId native;
        std::vector<stack::StackId> frames_run;
    };
    std::vector<Step> steps;  // innermost first
    std::uint32_t result = none;
    for (;;) {
        if (!is_python_frame(frames) || native >= stacks_.size()) {
            result = resolve_caller(native < stacks_.size() ? native : stack::lost_root);
            break;
        }
        const bool ends = !is_call(native);
        if (ends && native != stack::complete_root) native = stack::lost_root;
        const std::uint64_t key = static_cast<std::uint64_t>(native) << 32 | frames;
        if (const auto cached = joined_nodes_.find(key); cached != joined_nodes_.end()) {
            result = cached->second;
            break;
        }
        if (ends) {
            stack::StackId rest = frames;
            result = append_frames(resolve_caller(native), remove_frames(rest, true));
            joined_nodes_[key] = result;
            break;
        }
        steps.push_back({key, native, {}});
        if (runs_python(stacks_[native].address))
            steps.back().frames_run = remove_frames(frames, false);
        native = stacks_[native].parent;
    }
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
        result = append(result, symbols_.find(stacks_[step->native].address));
        joined_nodes_[step->key] = result = append_frames(result, step->frames_run);
    }
    return result;
}

std::uint32_t CallTree::append(std::uint32_t node, const std::vector<Location>& locations) {
    for (auto location = locations.rbegin(); location != locations.rend(); ++location)
        node = child(node, location_number(*location));
    return node;
}

// `frames` are innermost first.
std::uint32_t CallTree::append_frames(std::uint32_t node,
                                      const std::vector<stack::StackId>& frames) {
    for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
        const auto location = python_.locations.find(node_number(stacks_[*frame].address));
        node = child(node, location != python_.locations.end()
                               ? location_number(location->second, true)
                               : location_number(unknown_python));
    }
    return node;
}

// Removes frames from the inner end of a Python stack: all, or those that one C frame runs.
std::vector<stack::StackId> CallTree::remove_frames(stack::StackId& frames, bool take_all) const {
    std::vector<stack::StackId> removed;
    for (bool is_entry = false; is_python_frame(frames) && (take_all || !is_entry);) {
        removed.push_back(frames);
        is_entry = (stacks_[frames].address & entry_bit) != 0;
        frames = stacks_[frames].parent;
    }
    return removed;
}

bool CallTree::is_python_frame(stack::StackId id) const {
    return id < stacks_.size() && tag_of(stacks_[id].address) == frame_tag;
}

// Whether a C frame runs Python. The trace lists no addresses for frames of incomplete stacks,
// which are recognised by name.
bool CallTree::runs_python(std::uint64_t address) {
    if (python_.eval_addresses.contains(address)) return true;
    return std::ranges::any_of(symbols_.find(address), [](const Location& location) {
        return location.function == "_PyEval_EvalFrameDefault";
    });
}

// The interpreter allocates on behalf of the Python function that it runs.
bool CallTree::is_allocator_frame(const Location& location) const {
    return is_allocator_function(location.function) ||
           (interpreters_.contains(location.module) && !is_outermost(location.function));
}

std::uint32_t CallTree::child(std::uint32_t parent, std::uint32_t location) {
    const std::uint64_t key = (static_cast<std::uint64_t>(parent + 1) << 32) | location;
    const auto [entry, is_new] =
        children_.try_emplace(key, static_cast<std::uint32_t>(nodes_.size()));
    if (is_new) nodes_.push_back({parent, location});
    return entry->second;
}

std::uint32_t CallTree::location_number(const Location& location, bool is_python) {
    if (const auto cached = location_numbers_.find(&location); cached != location_numbers_.end())
        return cached->second;
    const std::string function = location.function + '\0' + location.module;
    const std::string line_key = '\0' + location.file + '\0' + std::to_string(location.line);
    const auto [entry, is_new] = number_of_location_.try_emplace(
        function + line_key, static_cast<std::uint32_t>(locations_.size()));
    if (is_new) {
        const std::uint32_t first =
            number_of_function_.try_emplace(function, entry->second).first->second;
        // A relative path ("<string>") may stand for several files.
        const std::string& line = location.file.starts_with('/') ? line_key : function + line_key;
        locations_.push_back({&location, first,
                              number_of_line_.try_emplace(line, entry->second).first->second,
                              first == entry->second ? !is_python && is_allocator_frame(location)
                                                     : locations_[first].is_allocator_frame});
    }
    return location_numbers_[&location] = entry->second;
}

std::vector<std::uint32_t> CallTree::allocation_sites() const {
    // `innermost`: none if all frames are allocator frames.
    std::vector<std::uint32_t> innermost, sites;
    innermost.reserve(nodes_.size());
    sites.reserve(nodes_.size());
    for (const Node& node : nodes_) {
        const std::uint32_t inherited = node.parent == none ? none : innermost[node.parent];
        innermost.push_back(locations_[node.location].is_allocator_frame ? inherited
                                                                         : node.location);
        sites.push_back(innermost.back() == none ? node.location : innermost.back());
    }
    return sites;
}

}  // namespace assay::heap
