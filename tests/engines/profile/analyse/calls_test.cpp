#include "profile/analyse/calls.hpp"

#include <doctest/doctest.h>

#include <string>

#include "profile/heap/python_nodes.hpp"

using namespace assay::heap;
using namespace assay;

namespace {

constexpr std::uint64_t eval = 0x1000, caller = 0x2000, between = 0x3000, library = 0x4000;
constexpr stack::StackId first = stack::lost_root + 1;

// A tree of stacks as a trace has it, with functions of known names.
struct Planted {
    Symbols symbols;
    Python python;
    std::vector<stack::Node> nodes = std::vector<stack::Node>(first);

    Planted() {
        symbols.know(eval, {{"eval", "", 0, "libpython3.11.so.1.0", false}});
        symbols.know(caller, {{"main", "", 0, "program", false}});
        symbols.know(between, {{"sort", "", 0, "libpython3.11.so.1.0", false}});
        symbols.know(library, {{"parse", "", 0, "library.so", false}});
        python.read("eval 1000\n");
    }
    stack::StackId add(stack::StackId parent, std::uint64_t address) {
        nodes.push_back({parent, address});
        return static_cast<stack::StackId>(nodes.size() - 1);
    }
    stack::StackId frame(stack::StackId outer, const std::string& name, bool is_entry) {
        const stack::StackId place = add(stack::no_stack, tagged(place_tag, nodes.size()));
        python.read("place " + std::to_string(place) + " 7 /a b/x.py\t" + name + "\n");
        return add(outer, tagged(frame_tag, place | (is_entry ? entry_bit : 0)));
    }
    stack::StackId join(stack::StackId native, stack::StackId frames) {
        return add(native, tagged(joined_tag, frames));
    }
    // Names, the outermost first, of the stack that an event names.
    std::string told(stack::StackId stack) {
        python.named.assign(nodes.size(), false);
        python.named[stack] = true;
        const CallTree tree(nodes, python, symbols);
        std::string words;
        for (std::uint32_t at = tree.node_of(stack); at != CallTree::none;
             at = tree.nodes()[at].parent)
            words = tree.places()[tree.nodes()[at].place].place->function +
                    (words.empty() ? "" : " " + words);
        return words;
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
    CHECK(p.told(p.join(c, inner)) == "main eval module outer sort eval key inner parse");
    CHECK(p.told(c) == "main eval sort eval parse");
}

TEST_CASE(
    "where the outermost C frames are not known, the innermost ones have their own Python frames") {
    Planted p;
    const auto c = p.add(p.add(stack::lost_root, eval), library);
    const auto frames = p.frame(p.frame(stack::no_stack, "module", true), "key", true);
    CHECK(p.told(p.join(c, frames)) == "(unknown callers) module eval key parse");
}

TEST_CASE("a C frame whose Python frames are not there stands alone") {
    Planted p;
    const auto c = p.add(p.add(p.add(p.add(stack::complete_root, eval), between), eval), library);
    CHECK(p.told(p.join(c, p.frame(stack::no_stack, "key", true))) == "eval sort eval key parse");
}

TEST_CASE("a damaged trace") {
    Planted p;
    const auto c = p.add(p.add(stack::complete_root, caller), eval);
    CHECK(p.told(p.join(c, 4711)) == "main eval");
    CHECK(p.told(p.join(c, c)) == "main eval");
    const auto untold = p.add(stack::no_stack, tagged(frame_tag, entry_bit | 4711));
    p.python.places[1] = {};
    CHECK(p.told(p.join(c, untold)) == "main eval (a Python function)");
}

TEST_CASE("the interpreter asks for whom it runs, a library for itself") {
    Planted p;
    const auto evaluating = p.add(p.add(stack::complete_root, caller), eval);
    const auto frames = p.frame(stack::no_stack, "function", true);
    const auto own = p.join(p.add(evaluating, between), frames),
               others = p.join(p.add(evaluating, library), frames);
    p.python.named.assign(p.nodes.size(), true);
    const CallTree tree(p.nodes, p.python, p.symbols);
    const auto asker = [&](stack::StackId stack) {
        return tree.places()[tree.asker(tree.node_of(stack))].place->function;
    };
    CHECK(asker(own) == "function");
    CHECK(asker(others) == "parse");
}

TEST_CASE("what a trace says of Python") {
    Python python;
    python.read(
        "place 12 34 /a folder/f.py\tC.<locals>.f g\nnonsense\nplace x\neval "
        "ffff800012345678\nunread 3.15\n");
    REQUIRE(python.places.size() == 1);
    const Place& place = python.places.at(12);
    CHECK(place.line == 34);
    CHECK(place.file == "/a folder/f.py");
    CHECK(place.function == "C.<locals>.f g");
    CHECK(python.evals.contains(0xffff800012345678));
    CHECK(python.unread == "3.15");
}
