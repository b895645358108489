// Walks the stack of a page fault after the program has ended, by the call-frame tables of the
// objects on disk (DWARF 5, 6.4).
#pragma once

#include <cstdint>
#include <vector>

#include "profile/analyse/symbols.hpp"
#include "profile/numa/record/process.hpp"

namespace assay::numa {

class Unwinding {
public:
    explicit Unwinding(const std::vector<Module>& modules);

    // Addresses within the calling instructions, innermost first; never empty. It ends where the
    // copied part of the stack or the tables end.
    std::vector<std::uint64_t> walk(const RawStack& stack);

private:
    struct Rule {
        bool known = false, from_bp = false, restores_bp = false;
        std::int64_t cfa = 0,
                     bp = 0;  // offsets: of the CFA from SP or BP; of the saved BP from the CFA
    };
    const Rule& rule_at(std::uint64_t address);
    Rule read_rule(std::uint64_t address) const;
    bool is_code(std::uint64_t address) const;

    heap::Symbols symbols_;
    std::vector<heap::Symbols::Object> objects_;
    std::map<std::uint64_t, Rule> rules_;
};

// Lines "load-bias begin end build-id path" as heap::Symbols takes them.
std::string module_lines(const std::vector<Module>& modules);

}  // namespace assay::numa
