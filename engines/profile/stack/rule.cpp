// Reads unwind rules from the .eh_frame tables of the loaded objects: parses CIE and FDE, runs the
// call-frame instructions and reduces the row to a rule.
#include "profile/stack/rule.hpp"

#include <cstddef>
#include <cstring>

#include "profile/stack/code.hpp"
#include "profile/stack/loaded_object.hpp"

namespace assay::stack {
namespace {

// DWARF pointer encodings in .eh_frame and .eh_frame_hdr.
constexpr std::uint8_t enc_udata4 = 0x03, enc_sdata4 = 0x0b, enc_pcrel = 0x10, enc_datarel = 0x30,
                       enc_omit = 0xff;

// Reads values within [begin, end). Beyond the end it returns zeros, and failed() becomes true.
class Reader {
public:
    Reader(const std::uint8_t* begin, const std::uint8_t* end) : position_(begin), end_(end) {}

    template <class T>
    T raw() {
        T value{};
        if (static_cast<std::size_t>(end_ - position_) < sizeof value || position_ > end_) {
            failed_ = true;
            position_ = end_;
            return value;
        }
        std::memcpy(&value, position_, sizeof value);
        position_ += sizeof value;
        return value;
    }
    std::uint8_t byte() { return raw<std::uint8_t>(); }
    std::uint64_t unsigned_leb() {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            const std::uint8_t b = byte();
            value |= static_cast<std::uint64_t>(b & 0x7f) << shift;
            if (!(b & 0x80)) return value;
        }
        failed_ = true;
        return value;
    }
    std::int64_t signed_leb() {
        std::uint64_t value = 0;
        int shift = 0;
        std::uint8_t b = 0x80;
        for (; (b & 0x80) && shift < 64; shift += 7) {
            b = byte();
            value |= static_cast<std::uint64_t>(b & 0x7f) << shift;
        }
        if (shift < 64 && (b & 0x40)) value |= ~std::uint64_t{0} << shift;
        return static_cast<std::int64_t>(value);
    }
    // A pointer in a four-byte encoding; any other encoding fails.
    std::uint64_t pointer(std::uint8_t encoding, std::uint64_t data_base) {
        const auto field_address = reinterpret_cast<std::uint64_t>(position_);
        const std::uint8_t format = encoding & 0x0f, base = encoding & 0x70;
        std::uint64_t value = 0;
        if (format == enc_sdata4)
            value = static_cast<std::uint64_t>(static_cast<std::int64_t>(raw<std::int32_t>()));
        else if (format == enc_udata4) value = raw<std::uint32_t>();
        else failed_ = true;
        if (base == enc_pcrel) return value + field_address;
        if (base == enc_datarel) return value + data_base;
        if (base != 0) failed_ = true;
        return value;
    }
    void skip(std::uint64_t bytes) {
        if (bytes > static_cast<std::uint64_t>(end_ - position_)) failed_ = true, position_ = end_;
        else position_ += bytes;
    }
    Reader part(std::uint64_t bytes) {
        const std::uint8_t* begin = position_;
        skip(bytes);
        return {begin, position_};
    }
    bool at_end() const { return position_ >= end_; }
    bool failed() const { return failed_; }
    const std::uint8_t* position() const { return position_; }
    const std::uint8_t* end() const { return end_; }

private:
    const std::uint8_t* position_;
    const std::uint8_t* end_;
    bool failed_ = false;
};

struct Cie {  // common information entry
    std::uint64_t code_align = 1;
    std::int64_t data_align = 1;
    std::uint8_t encoding = 0;  // of the addresses in its FDEs (frame description entries)
    bool has_data = false;      // has augmentation data, preceded by their length
    bool is_signal = false;
    const std::uint8_t* begin = nullptr;
    const std::uint8_t* end = nullptr;
};

bool read_cie(const std::uint8_t* begin, const std::uint8_t* limit, Cie& cie) {
    Reader reader(begin, limit);
    const auto length = reader.raw<std::uint32_t>();
    if (length == 0 || length == 0xffffffff) return false;
    Reader r = reader.part(length);
    if (r.raw<std::uint32_t>() != 0) return false;
    const std::uint8_t version = r.byte();
    if (version != 1 && version != 3) return false;
    const char* augmentation = reinterpret_cast<const char*>(r.position());
    while (!r.at_end() && r.byte() != 0) {
    }
    cie.code_align = r.unsigned_leb();
    cie.data_align = r.signed_leb();
    const std::uint64_t return_register = version == 1 ? r.byte() : r.unsigned_leb();
    if (return_register != reg_ra) return false;
    if (augmentation[0] == 'z') {
        cie.has_data = true;
        Reader data = r.part(r.unsigned_leb());
        for (const char* c = augmentation + 1; *c != 0; ++c) {
            if (*c == 'R') cie.encoding = data.byte();
            else if (*c == 'L') data.byte();
            else if (*c == 'S') cie.is_signal = true;
            else if (*c == 'B' || *c == 'G') continue;  // aarch64: signing key, tagged stacks
            else if (*c == 'P') {
                const std::uint8_t encoding = data.byte();
                data.skip((encoding & 0x07) == 4 || (encoding & 0x07) == 0 ? 8
                          : (encoding & 0x07) == 2                         ? 2
                                                                           : 4);
            } else return false;
        }
        if (data.failed()) return false;
    } else if (augmentation[0] != 0) {
        return false;
    }
    cie.begin = r.position();
    cie.end = r.end();
    return !reader.failed() && !r.failed();
}

// Where a frame has saved a register of its caller.
struct RegisterRule {
    enum Kind : std::uint8_t { same, at_cfa, expression, undefined, elsewhere } kind = same;
    std::int64_t offset = 0;
    Reader block{nullptr, nullptr};
};

// A row of the call-frame table: the rules for the CFA, the BP and the return address.
struct Row {
    int base = reg_sp;
    std::int64_t offset = initial_cfa;
    Reader expression{nullptr, nullptr};
    bool has_expression = false;
    RegisterRule bp{},
        ra = call_pushes_return_address ? RegisterRule{RegisterRule::at_cfa, -8} : RegisterRule{};
};

// Call-frame instructions (DWARF 5, 7.24). The first three have their operand in the low 6 bits.
enum : std::uint8_t {
    cfa_advance_loc = 0x40,
    cfa_offset = 0x80,
    cfa_restore = 0xc0,
    cfa_nop = 0x00,
    cfa_set_loc = 0x01,
    cfa_advance_loc1 = 0x02,
    cfa_advance_loc2 = 0x03,
    cfa_advance_loc4 = 0x04,
    cfa_offset_extended = 0x05,
    cfa_restore_extended = 0x06,
    cfa_undefined = 0x07,
    cfa_same_value = 0x08,
    cfa_register = 0x09,
    cfa_remember_state = 0x0a,
    cfa_restore_state = 0x0b,
    cfa_def_cfa = 0x0c,
    cfa_def_cfa_register = 0x0d,
    cfa_def_cfa_offset = 0x0e,
    cfa_def_cfa_expression = 0x0f,
    cfa_expression = 0x10,
    cfa_offset_extended_sf = 0x11,
    cfa_def_cfa_sf = 0x12,
    cfa_def_cfa_offset_sf = 0x13,
    cfa_val_offset = 0x14,
    cfa_val_offset_sf = 0x15,
    cfa_val_expression = 0x16,
    cfa_aarch64_negate_ra_state = 0x2d,
    cfa_gnu_args_size = 0x2e,
};

// Runs call-frame instructions (DWARF 5, 6.4.2) until the row of `address` is complete.
class CfiInterpreter {
public:
    CfiInterpreter(const Cie& cie, std::uint64_t location, std::uint64_t address)
        : cie_(cie), location_(location), address_(address) {}

    Row row;

    // Returns false for an unsupported instruction.
    bool run(Reader r) {
        while (!r.at_end() && !r.failed() && !is_past_)
            if (!step(r)) return false;
        return !r.failed();
    }
    void save_initial_row() { initial_ = row; }

private:
    bool step(Reader& r) {
        const std::uint8_t op = r.byte(), low = op & 0x3f;
        switch (op & 0xc0) {
            case cfa_advance_loc: advance(low); return true;
            case cfa_offset:
                set_register(low, RegisterRule::at_cfa,
                             static_cast<std::int64_t>(r.unsigned_leb()) * cie_.data_align);
                return true;
            case cfa_restore: restore(low); return true;
            default: return step_extended(low, r);
        }
    }

    bool step_extended(std::uint8_t op, Reader& r) {
        switch (op) {
            case cfa_nop: return true;
            case cfa_set_loc: return false;  // no compiler for Linux writes it
            case cfa_advance_loc1: advance(r.byte()); return true;
            case cfa_advance_loc2: advance(r.raw<std::uint16_t>()); return true;
            case cfa_advance_loc4: advance(r.raw<std::uint32_t>()); return true;
            case cfa_offset_extended:
                return set_offset(r, static_cast<std::int64_t>(r.unsigned_leb()), false);
            case cfa_restore_extended: restore(r.unsigned_leb()); return true;
            case cfa_undefined:
                set_register(r.unsigned_leb(), RegisterRule::undefined);
                return true;
            case cfa_same_value: set_register(r.unsigned_leb(), RegisterRule::same); return true;
            case cfa_register:
                set_register(r.unsigned_leb(), RegisterRule::elsewhere);
                r.unsigned_leb();
                return true;
            case cfa_remember_state: return remember_state();
            case cfa_restore_state: return restore_state();
            case cfa_def_cfa:
                set_cfa(static_cast<int>(r.unsigned_leb()), 0);
                row.offset = static_cast<std::int64_t>(r.unsigned_leb());
                return true;
            case cfa_def_cfa_register:
                set_cfa(static_cast<int>(r.unsigned_leb()), row.offset);
                return true;
            case cfa_def_cfa_offset:
                row.offset = static_cast<std::int64_t>(r.unsigned_leb());
                return true;
            case cfa_def_cfa_expression:
                row.expression = r.part(r.unsigned_leb());
                row.has_expression = true;
                return true;
            case cfa_expression: return set_expression(r, RegisterRule::expression);
            case cfa_offset_extended_sf:
                return set_offset(r, static_cast<std::int64_t>(r.unsigned_leb()), true);
            case cfa_def_cfa_sf:
                set_cfa(static_cast<int>(r.unsigned_leb()), 0);
                row.offset = r.signed_leb() * cie_.data_align;
                return true;
            case cfa_def_cfa_offset_sf: row.offset = r.signed_leb() * cie_.data_align; return true;
            case cfa_val_offset:
                set_register(r.unsigned_leb(), RegisterRule::elsewhere);
                r.unsigned_leb();
                return true;
            case cfa_val_offset_sf:
                set_register(r.unsigned_leb(), RegisterRule::elsewhere);
                r.signed_leb();
                return true;
            case cfa_val_expression: return set_expression(r, RegisterRule::elsewhere);
            case cfa_aarch64_negate_ra_state:
                return !call_pushes_return_address;  // return addresses are signed or not
            case cfa_gnu_args_size: r.unsigned_leb(); return true;
            default: return false;
        }
    }

    bool set_offset(Reader& r, std::int64_t reg, bool is_signed) {
        const std::int64_t factor =
            is_signed ? r.signed_leb() : static_cast<std::int64_t>(r.unsigned_leb());
        set_register(static_cast<std::uint64_t>(reg), RegisterRule::at_cfa,
                     factor * cie_.data_align);
        return true;
    }
    bool set_expression(Reader& r, RegisterRule::Kind kind) {
        const std::uint64_t reg = r.unsigned_leb();
        const Reader block = r.part(r.unsigned_leb());
        set_register(reg, kind, 0, block);
        return true;
    }
    void advance(std::uint64_t delta) {
        location_ += delta * cie_.code_align;
        if (location_ > address_) is_past_ = true;
    }
    void set_cfa(int base, std::int64_t offset) {
        row.base = base;
        row.offset = offset;
        row.has_expression = false;
    }
    void set_register(std::uint64_t reg, RegisterRule::Kind kind, std::int64_t offset = 0,
                      Reader block = {nullptr, nullptr}) {
        if (reg == reg_bp) row.bp = {kind, offset, block};
        if (reg == reg_ra) row.ra = {kind, offset, block};
    }
    void restore(std::uint64_t reg) {
        if (reg == reg_bp) row.bp = initial_.bp;
        if (reg == reg_ra) row.ra = initial_.ra;
    }
    bool remember_state() {
        if (depth_ == max_depth) return false;
        saved_rows_[depth_++] = row;
        return true;
    }
    bool restore_state() {
        if (depth_ == 0) return false;
        row = saved_rows_[--depth_];
        return true;
    }

    static constexpr int max_depth = 8;
    const Cie& cie_;
    std::uint64_t location_, address_;
    bool is_past_ = false;
    Row initial_{};
    Row saved_rows_[max_depth]{};
    int depth_ = 0;
};

constexpr std::uint8_t op_deref = 0x06, op_breg0 = 0x70;

// "BP + k": GCC writes this for the saved RBP of a realigned frame.
bool is_bp_plus(Reader block, std::int64_t& k) {
    if (block.byte() != op_breg0 + reg_bp) return false;
    k = block.signed_leb();
    return block.at_end() && !block.failed();
}

// "*(BP + k)": GCC writes this for the CFA of a realigned frame.
bool is_deref_bp_plus(Reader block, std::int64_t& k) {
    if (block.byte() != op_breg0 + reg_bp) return false;
    k = block.signed_leb();
    return block.byte() == op_deref && block.at_end() && !block.failed();
}

// Whether this is the linker's expression for a PLT entry: SP + 8, or SP + 16 after the push.
bool is_plt_expression(Reader block, std::uint64_t address, std::int64_t& k) {
    static constexpr std::uint8_t plt_expression[] = {0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a,
                                                      0x3b, 0x2a, 0x33, 0x24, 0x22};
    if (static_cast<std::size_t>(block.end() - block.position()) != sizeof plt_expression)
        return false;
    for (std::size_t i = 0; i < sizeof plt_expression; ++i)
        if (i != 6 && block.position()[i] != plt_expression[i]) return false;
    // DW_OP_lit0 + the offset of the instruction after the push.
    const unsigned pushed_from = block.position()[6] - 0x30u;
    k = 8 + ((address & 15) >= pushed_from ? 8 : 0);
    return true;
}

bool fits_int32(std::int64_t value) { return value == static_cast<std::int32_t>(value); }

Rule make_rule(const Row& row, const Cie& cie, std::uint64_t address) {
    Rule rule;
    rule.kind = RuleKind::unsupported;
    if (row.ra.kind == RegisterRule::undefined) {
        rule.kind = RuleKind::outermost;
        return rule;
    }
    if (cie.is_signal) {
        rule.kind = RuleKind::signal;
        return rule;
    }
    if (row.ra.kind == RegisterRule::at_cfa
            ? !fits_int32(row.ra.offset) || (call_pushes_return_address && row.ra.offset != -8)
            : call_pushes_return_address || row.ra.kind != RegisterRule::same)
        return rule;
    rule.ra = row.ra.kind == RegisterRule::at_cfa ? static_cast<std::int32_t>(row.ra.offset)
                                                  : Rule::in_register;
    std::int64_t cfa = row.offset, bp = 0;
    RuleKind kind = row.base == reg_sp ? RuleKind::from_sp : RuleKind::from_bp;
    if (row.has_expression) {
        if (is_deref_bp_plus(row.expression, cfa)) kind = RuleKind::from_bp_deref;
        else if (call_pushes_return_address && is_plt_expression(row.expression, address, cfa))
            kind = RuleKind::from_sp;
        else return rule;
    } else if (row.base != reg_sp && row.base != reg_bp) {
        return rule;
    }
    if (row.bp.kind == RegisterRule::at_cfa) {
        rule.saved = SavedBp::at_cfa;
        bp = row.bp.offset;
    } else if (row.bp.kind == RegisterRule::expression && is_bp_plus(row.bp.block, bp)) {
        rule.saved = SavedBp::at_bp;
    } else if (row.bp.kind != RegisterRule::same && row.bp.kind != RegisterRule::undefined) {
        return rule;
    }
    if (!fits_int32(cfa) || !fits_int32(bp)) return rule;
    rule.kind = kind;
    rule.cfa = static_cast<std::int32_t>(cfa);
    rule.bp = static_cast<std::int32_t>(bp);
    return rule;
}

// Finds the FDE of `address` in the sorted table of .eh_frame_hdr; null if there is none.
const std::uint8_t* find_fde(const std::uint8_t* header, const std::uint8_t* limit,
                             std::uint64_t address) {
    Reader r(header, limit);
    if (r.byte() != 1) return nullptr;
    const std::uint8_t frame_encoding = r.byte(), count_encoding = r.byte(),
                       table_encoding = r.byte();
    if (frame_encoding == enc_omit || count_encoding == enc_omit ||
        table_encoding != (enc_datarel | enc_sdata4))
        return nullptr;
    const auto base = reinterpret_cast<std::uint64_t>(header);
    r.pointer(frame_encoding, base);
    const std::uint64_t count = r.pointer(count_encoding, base);
    struct Entry {
        std::int32_t location, fde;
    };
    if (r.failed() || count == 0 ||
        count > static_cast<std::uint64_t>(limit - r.position()) / sizeof(Entry))
        return nullptr;
    const auto entry = [table = r.position()](std::uint64_t k) {
        Entry e;
        std::memcpy(&e, table + k * sizeof e, sizeof e);
        return e;
    };
    const auto target = static_cast<std::int64_t>(address - base);
    // Binary search: entry(low) begins at or before `address`, entry(high) after it.
    std::uint64_t low = 0, high = count;
    if (entry(0).location > target) return nullptr;
    while (high - low > 1) {
        const std::uint64_t middle = low + (high - low) / 2;
        (entry(middle).location <= target ? low : high) = middle;
    }
    return header + entry(low).fde;
}

Rule read_row(std::uint64_t address) {
    LoadedObject object;
    if (!find_loaded_object(address, object)) return {};
    const auto [header, begin, limit] = object;
    if (header < begin || header >= limit) return {};
    const std::uint8_t* fde_begin = find_fde(header, limit, address);
    if (fde_begin == nullptr || fde_begin < begin || fde_begin >= limit) return {};

    Reader reader(fde_begin, limit);
    const auto length = reader.raw<std::uint32_t>();
    if (length == 0 || length == 0xffffffff) return {};
    Reader fde = reader.part(length);
    const std::uint8_t* cie_pointer = fde.position();
    const std::uint8_t* cie_begin = cie_pointer - fde.raw<std::uint32_t>();
    Cie cie;
    if (cie_begin < begin || cie_begin >= limit || !read_cie(cie_begin, limit, cie)) return {};
    const std::uint64_t function_begin = fde.pointer(cie.encoding, 0);
    const std::uint64_t range = fde.pointer(cie.encoding & 0x0f, 0);
    if (fde.failed() || address < function_begin || address - function_begin >= range) return {};
    if (cie.has_data) fde.skip(fde.unsigned_leb());

    CfiInterpreter interpreter(cie, function_begin, address);
    Rule unsupported;
    unsupported.kind = RuleKind::unsupported;
    // The instructions of the CIE apply from the first address on.
    if (!interpreter.run({cie.begin, cie.end})) return unsupported;
    interpreter.save_initial_row();
    if (!interpreter.run({fde.position(), fde.end()}) || fde.failed()) return unsupported;
    return make_rule(interpreter.row, cie, address);
}

}  // namespace

Rule read_rule(std::uint64_t address) {
    const Rule rule = read_row(address);
    if (rule.kind != RuleKind::unknown || !keeps_frame_pointer(address)) return rule;
    return {.cfa = 16, .bp = -16, .kind = RuleKind::from_prologue, .saved = SavedBp::at_cfa};
}

}  // namespace assay::stack
