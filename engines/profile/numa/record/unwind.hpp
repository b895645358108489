// Unwinds the stacks of page faults and samples after the program has ended, with the call-frame
// information of the objects on disk (DWARF 5, section 6.4).
#pragma once

#include <cstdint>
#include <vector>

#include "profile/analyse/symbols.hpp"
#include "profile/numa/record/process.hpp"

namespace assay::numa {

class StackUnwinder {
public:
    explicit StackUnwinder(const std::vector<Module>& modules);

    // Addresses within the calling instructions, innermost first; never empty. The walk ends where
    // the copied part of the stack or the unwind tables end.
    std::vector<std::uint64_t> walk(const RawStack& stack);

private:
    struct Rule {
        bool is_known = false, from_bp = false, restores_bp = false;
        // Offsets: of the CFA from SP or BP; of the saved BP from the CFA.
        std::int64_t cfa = 0, bp = 0;
    };
    const Rule& rule_at(std::uint64_t address);
    Rule read_rule(std::uint64_t address) const;
    bool is_code(std::uint64_t address) const;

    heap::Symbols symbols_;
    std::vector<heap::Symbols::Object> objects_;
    std::map<std::uint64_t, Rule> rules_;
};

// Formats modules as the lines "load-bias begin end build-id path" that heap::Symbols reads.
std::string module_lines(const std::vector<Module>& modules);

}  // namespace assay::numa
