// Unwinds copied stacks with the call-frame information of the objects on disk (libdw).
#include "profile/numa/record/unwind.hpp"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

namespace assay::numa {
namespace {

constexpr std::size_t max_frames = 256;
constexpr unsigned bp_column = 6, sp_column = 7;  // of x86-64

}  // namespace

std::string module_lines(const std::vector<Module>& modules) {
    std::string lines;
    for (const Module& module : modules)
        lines += fmt::format("{:x} {:x} {:x} - {}\n", module.bias, module.begin, module.end,
                             module.path);
    return lines;
}

StackUnwinder::StackUnwinder(const std::vector<Module>& modules) {
    symbols_.add_modules(module_lines(modules));
    objects_ = symbols_.objects();
}

const StackUnwinder::Rule& StackUnwinder::rule_at(std::uint64_t address) {
    const auto [entry, is_new] = rules_.try_emplace(address);
    if (is_new) entry->second = read_rule(address);
    return entry->second;
}

StackUnwinder::Rule StackUnwinder::read_rule(std::uint64_t address) const {
    Rule rule;
    for (const heap::Symbols::Object& object : objects_) {
        if (address < object.begin || address >= object.end) continue;
        Dwarf_Addr bias = 0;
        Dwarf_CFI* table = dwfl_module_eh_cfi(object.module, &bias);
        Dwarf_Frame* raw_frame = nullptr;
        if (table == nullptr ||
            dwarf_cfi_addrframe(table, address - object.bias + object.offline - bias, &raw_frame) !=
                0)
            return rule;
        const std::unique_ptr<Dwarf_Frame, decltype(&std::free)> frame(raw_frame, &std::free);
        Dwarf_Op *cfa = nullptr, *saved = nullptr, buffer[3];
        std::size_t count = 0;
        if (dwarf_frame_cfa(frame.get(), &cfa, &count) != 0 || count < 1) return rule;
        if (count == 1 && cfa->atom == DW_OP_bregx) {
            if (cfa->number != sp_column && cfa->number != bp_column) return rule;
            rule.from_bp = cfa->number == bp_column;
            rule.cfa = static_cast<std::int64_t>(cfa->number2);
        } else if (cfa->atom >= DW_OP_breg0 && cfa->atom <= DW_OP_breg31 && count == 1) {
            const unsigned column = cfa->atom - DW_OP_breg0;
            if (column != sp_column && column != bp_column) return rule;
            rule.from_bp = column == bp_column;
            rule.cfa = static_cast<std::int64_t>(cfa->number);
        } else {
            rule.cfa = 8;  // an expression: the entry of a PLT slot
        }
        rule.is_known = true;
        if (dwarf_frame_register(frame.get(), bp_column, buffer, &saved, &count) == 0 &&
            count == 2 && saved[0].atom == DW_OP_call_frame_cfa &&
            saved[1].atom == DW_OP_plus_uconst) {
            rule.restores_bp = true;
            rule.bp = static_cast<std::int64_t>(saved[1].number);
        }
        return rule;
    }
    return rule;
}

bool StackUnwinder::is_code(std::uint64_t address) const {
    for (const heap::Symbols::Object& object : objects_)
        if (address >= object.begin && address < object.end) return true;
    return false;
}

std::vector<std::uint64_t> StackUnwinder::walk(const RawStack& stack) {
    std::vector<std::uint64_t> addresses{stack.ip};
    std::uint64_t sp = stack.sp, bp = stack.bp;
    const auto read_word = [&](std::uint64_t address, std::uint64_t& word) {
        const std::uint64_t index = (address - stack.sp) / 8;
        if (address < stack.sp || address % 8 != 0 || index >= stack.words.size()) return false;
        word = stack.words[index];
        return true;
    };
    while (addresses.size() < max_frames) {
        const Rule& rule = rule_at(addresses.back());
        const std::uint64_t cfa = (rule.from_bp ? bp : sp) + static_cast<std::uint64_t>(rule.cfa);
        std::uint64_t caller = 0;
        if (!rule.is_known || cfa <= sp || !read_word(cfa - 8, caller) || caller < 4096) break;
        // The return address of the outermost frame is in no object.
        if (!is_code(caller - 1)) break;
        if (rule.restores_bp && !read_word(cfa + static_cast<std::uint64_t>(rule.bp), bp)) bp = 0;
        sp = cfa;
        addresses.push_back(caller - 1);
    }
    return addresses;
}

}  // namespace assay::numa
