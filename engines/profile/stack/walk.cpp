// One step of a stack walk: applies an unwind rule to a frame. step.slots records the addresses
// that the step reads (see walk.hpp).
#include "profile/stack/walk.hpp"

#include <cstring>
#include <initializer_list>

#include "profile/stack/code.hpp"

namespace assay::stack {
namespace {

std::uint64_t load64(std::uint64_t address) {
    std::uint64_t value;
    std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
    return value;
}

Step step_from_signal(Frame& frame, const Bounds& bounds) {
    Step step;
    const std::uint64_t sp = frame.sp;
    if (!bounds.contains(sp + signal_bp) || !bounds.contains(sp + signal_pc)) {
        step.end = Step::End::lost;
        return step;
    }
    for (const std::uint64_t offset : {signal_bp, signal_sp, signal_pc})
        step.slots[step.slot_count++] = sp + offset;
    step.has_new_bp = true;
    step.bp_slot = sp + signal_bp;
    // The next step reads the link register if it needs it.
    frame = {load64(sp + signal_pc), load64(sp + signal_sp), load64(sp + signal_bp), false,
             call_pushes_return_address ? 0 : sp + signal_lr};
    return step;
}

}  // namespace

void RuleCache::clear() { std::memset(static_cast<void*>(entries_), 0, sizeof entries_); }

Step step(Frame& frame, const Rule& rule, const Bounds& bounds) {
    Step step;
    const auto lost = [&step] {
        step.end = Step::End::lost;
        return step;
    };
    std::uint64_t cfa = 0;
    switch (rule.kind) {
        case RuleKind::outermost: step.end = Step::End::outermost; return step;
        case RuleKind::unsupported:
        case RuleKind::unknown: return lost();
        case RuleKind::signal: return step_from_signal(frame, bounds);
        case RuleKind::from_sp:
            cfa = frame.sp + static_cast<std::uint64_t>(std::int64_t{rule.cfa});
            break;
        case RuleKind::from_prologue:
            if (!frame.called)
                return lost();  // an interrupted function may not have set up its frame yet
            [[fallthrough]];
        case RuleKind::from_bp:
            cfa = frame.bp + static_cast<std::uint64_t>(std::int64_t{rule.cfa});
            step.uses_bp = true;
            break;
        case RuleKind::from_bp_deref: {
            const std::uint64_t address =
                frame.bp + static_cast<std::uint64_t>(std::int64_t{rule.cfa});
            step.uses_bp = true;
            if (!bounds.contains(address)) return lost();
            cfa = load64(address);
            step.slots[step.slot_count++] = address;
            break;
        }
    }
    // The caller's frame is above its callee's. An interrupted callee may not have a frame yet.
    if (cfa < frame.sp || (cfa == frame.sp && (call_pushes_return_address || frame.called)))
        return lost();
    const std::uint64_t return_slot = rule.ra == Rule::in_register
                                          ? frame.lr_address
                                          : cfa + static_cast<std::uint64_t>(std::int64_t{rule.ra});
    if (!bounds.contains(return_slot)) return lost();
    if (rule.saved != SavedBp::same) {
        const std::uint64_t base = rule.saved == SavedBp::at_cfa ? cfa : frame.bp;
        step.uses_bp |= rule.saved == SavedBp::at_bp;
        step.bp_slot = base + static_cast<std::uint64_t>(std::int64_t{rule.bp});
        if (!bounds.contains(step.bp_slot)) return lost();
        step.has_new_bp = true;
    }
    step.slots[step.slot_count++] = return_slot;
    if (load64(return_slot) == 0) {
        step.end = Step::End::outermost;
        return step;
    }
    if (rule.kind == RuleKind::from_prologue && !follows_call(load64(return_slot))) return lost();
    frame = {strip_signature(load64(return_slot)), cfa,
             step.has_new_bp ? load64(step.bp_slot) : frame.bp, true};
    return step;
}

}  // namespace assay::stack
