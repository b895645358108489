#include "profile/analyse/call_tree.hpp"

#include <doctest/doctest.h>

#include <string>

#include "profile/heap/python_nodes.hpp"

using namespace assay::heap;
using namespace assay;

namespace {

constexpr std::uint64_t eval = 0x1000, caller = 0x2000, between = 0x3000, library = 0x4000;
constexpr stack::StackId first = stack::lost_root + 1;

// A stack tree with functions of known names.
struct Planted {
    Symbols symbols;
    PythonMetadata python;
    std::vector<stack::Node> nodes = std::vector<stack::Node>(first);

    Planted() {
        symbols.set_locations(eval, {{"eval", "", 0, "libpython3.11.so.1.0", false}});
        symbols.set_locations(caller, {{"main", "", 0, "program", false}});
        symbols.set_locations(between, {{"sort", "", 0, "libpython3.11.so.1.0", false}});
        symbols.set_locations(library, {{"parse", "", 0, "library.so", false}});
        python.parse("eval 1000\n");
    }
    stack::StackId add(stack::StackId parent, std::uint64_t address) {
        nodes.push_back({parent, address});
        return static_cast<stack::StackId>(nodes.size() - 1);
    }
    stack::StackId frame(stack::StackId outer, const std::string& name, bool is_entry) {
        const stack::StackId location = add(stack::no_stack, with_tag(line_tag, nodes.size()));
        python.parse("place " + std::to_string(location) + " 7 /a b/x.py\t" + name + "\n");
        return add(outer, with_tag(frame_tag, location | (is_entry ? entry_bit : 0)));
    }
    stack::StackId join(stack::StackId native, stack::StackId frames) {
        return add(native, with_tag(joined_tag, frames));
    }
    // The names of a stack's functions, the outermost first.
    std::string functions_of(stack::StackId stack) {
        python.named_stacks.assign(nodes.size(), false);
        python.named_stacks[stack] = true;
        const CallTree tree(nodes, python, symbols);
        std::string names;
        for (std::uint32_t node = tree.node_of(stack); node != CallTree::none;
             node = tree.nodes()[node].parent)
            names = tree.locations()[tree.nodes()[node].location].location->function +
                    (names.empty() ? "" : " " + names);
        return names;
    }
};

}  // namespace

TEST_CASE("each C frame that runs Python is followed by the frames that it runs") {
    Planted p;
    const auto c = p.add(
        p.add(p.add(p.add(p.add(stack::complete_root, caller), eval), between), eval), library);
    const auto module = p.frame(stack::no_stack, "module", true),
               outer = p.frame(module, "outer", false);
    const auto inner = p.frame(p.frame(outer, "key", true), "inner", false);
    CHECK(p.functions_of(p.join(c, inner)) == "main eval module outer sort eval key inner parse");
    CHECK(p.functions_of(c) == "main eval sort eval parse");
}

TEST_CASE("with unknown outermost C frames, the innermost ones keep their own Python frames") {
    Planted p;
    const auto c = p.add(p.add(stack::lost_root, eval), library);
    const auto frames = p.frame(p.frame(stack::no_stack, "module", true), "key", true);
    CHECK(p.functions_of(p.join(c, frames)) == "(unknown callers) module eval key parse");
}

TEST_CASE("a C frame without its Python frames has none") {
    Planted p;
    const auto c = p.add(p.add(p.add(p.add(stack::complete_root, eval), between), eval), library);
    CHECK(p.functions_of(p.join(c, p.frame(stack::no_stack, "key", true))) ==
          "eval sort eval key parse");
}

TEST_CASE("joined stacks and frames that a damaged trace lacks are left out") {
    Planted p;
    const auto c = p.add(p.add(stack::complete_root, caller), eval);
    CHECK(p.functions_of(p.join(c, 4711)) == "main eval");
    CHECK(p.functions_of(p.join(c, c)) == "main eval");
    const auto unknown = p.add(stack::no_stack, with_tag(frame_tag, entry_bit | 4711));
    p.python.locations[1] = {};
    CHECK(p.functions_of(p.join(c, unknown)) == "main eval (a Python function)");
}

TEST_CASE("the interpreter allocates for the function that it runs, a library for itself") {
    Planted p;
    const auto evaluating = p.add(p.add(stack::complete_root, caller), eval);
    const auto frames = p.frame(stack::no_stack, "function", true);
    const auto interpreter_allocation = p.join(p.add(evaluating, between), frames),
               library_allocation = p.join(p.add(evaluating, library), frames);
    p.python.named_stacks.assign(p.nodes.size(), true);
    const CallTree tree(p.nodes, p.python, p.symbols);
    const auto site = [&](stack::StackId stack) {
        return tree.locations()[tree.allocation_sites()[tree.node_of(stack)]].location->function;
    };
    CHECK(site(interpreter_allocation) == "function");
    CHECK(site(library_allocation) == "parse");
}

TEST_CASE("Python metadata is parsed, and lines that are damaged are skipped") {
    PythonMetadata python;
    python.parse(
        "place 12 34 /a folder/f.py\tC.<locals>.f g\nnonsense\nplace x\neval "
        "ffff800012345678\nunread 3.15\n");
    REQUIRE(python.locations.size() == 1);
    const Location& location = python.locations.at(12);
    CHECK(location.line == 34);
    CHECK(location.file == "/a folder/f.py");
    CHECK(location.function == "C.<locals>.f g");
    CHECK(python.eval_addresses.contains(0xffff800012345678));
    CHECK(python.unsupported_version == "3.15");
}
