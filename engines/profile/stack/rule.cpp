#include "profile/stack/rule.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>

#include <cstddef>
#include <cstring>

#include "profile/stack/code.hpp"

namespace assay::stack {
namespace {

// DWARF pointer encodings that compilers use in these sections.
constexpr std::uint8_t enc_udata4 = 0x03, enc_sdata4 = 0x0b, enc_pcrel = 0x10, enc_datarel = 0x30,
                       enc_omit = 0xff;

// Reads within [at, end): beyond it, zeros and `bad`.
class Reader {
public:
    Reader(const std::uint8_t* at, const std::uint8_t* end) : at_(at), end_(end) {}

    template <class T>
    T raw() {
        T value{};
        if (static_cast<std::size_t>(end_ - at_) < sizeof value || at_ > end_) {
            bad_ = true;
            at_ = end_;
            return value;
        }
        std::memcpy(&value, at_, sizeof value);
        at_ += sizeof value;
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
        bad_ = true;
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
    // A pointer of an encoding with four bytes; anything else is bad.
    std::uint64_t pointer(std::uint8_t encoding, std::uint64_t data_base) {
        const auto here = reinterpret_cast<std::uint64_t>(at_);
        const std::uint8_t format = encoding & 0x0f, base = encoding & 0x70;
        std::uint64_t value = 0;
        if (format == enc_sdata4)
            value = static_cast<std::uint64_t>(static_cast<std::int64_t>(raw<std::int32_t>()));
        else if (format == enc_udata4) value = raw<std::uint32_t>();
        else bad_ = true;
        if (base == enc_pcrel) return value + here;
        if (base == enc_datarel) return value + data_base;
        if (base != 0) bad_ = true;
        return value;
    }
    void skip(std::uint64_t bytes) {
        if (bytes > static_cast<std::uint64_t>(end_ - at_)) bad_ = true, at_ = end_;
        else at_ += bytes;
    }
    Reader part(std::uint64_t bytes) {
        const std::uint8_t* from = at_;
        skip(bytes);
        return {from, at_};
    }
    bool done() const { return at_ >= end_; }
    bool bad() const { return bad_; }
    const std::uint8_t* at() const { return at_; }
    const std::uint8_t* end() const { return end_; }

private:
    const std::uint8_t* at_;
    const std::uint8_t* end_;
    bool bad_ = false;
};

struct Common {  // a CIE
    std::uint64_t code_align = 1;
    std::int64_t data_align = 1;
    std::uint8_t encoding = 0;  // of the addresses in its FDEs
    bool has_data = false;      // augmentation data, whose length is given
    bool is_signal = false;
    const std::uint8_t* begin = nullptr;
    const std::uint8_t* end = nullptr;
};

bool read_common(const std::uint8_t* at, const std::uint8_t* limit, Common& cie) {
    Reader whole(at, limit);
    const auto length = whole.raw<std::uint32_t>();
    if (length == 0 || length == 0xffffffff) return false;
    Reader r = whole.part(length);
    if (r.raw<std::uint32_t>() != 0) return false;
    const std::uint8_t version = r.byte();
    if (version != 1 && version != 3) return false;
    const char* augmentation = reinterpret_cast<const char*>(r.at());
    while (!r.done() && r.byte() != 0) {
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
            else if (*c == 'B' || *c == 'G')
                continue;  // aarch64: the key of signatures, tagged stacks
            else if (*c == 'P') {
                const std::uint8_t encoding = data.byte();
                data.skip((encoding & 0x07) == 4 || (encoding & 0x07) == 0 ? 8
                          : (encoding & 0x07) == 2                         ? 2
                                                                           : 4);
            } else return false;
        }
        if (data.bad()) return false;
    } else if (augmentation[0] != 0) {
        return false;
    }
    cie.begin = r.at();
    cie.end = r.end();
    return !whole.bad() && !r.bad();
}

// Where a register of the caller is to be found.
struct Place {
    enum Kind : std::uint8_t { same, at_cfa, expression, undefined, elsewhere } kind = same;
    std::int64_t offset = 0;
    Reader block{nullptr, nullptr};
};

struct Row {
    int base = reg_sp;
    std::int64_t offset = initial_cfa;
    Reader expression{nullptr, nullptr};
    bool has_expression = false;
    Place bp{}, ra = calls_push ? Place{Place::at_cfa, -8} : Place{};
};

// Runs call-frame instructions until the row of `address` is complete; false for what cannot be
// understood.
class Machine {
public:
    Machine(const Common& cie, std::uint64_t location, std::uint64_t address)
        : cie_(cie), location_(location), address_(address) {}

    Row row;

    bool run(Reader r) {
        while (!r.done() && !r.bad() && !past_)
            if (!step(r)) return false;
        return !r.bad();
    }
    void keep_initial() { initial_ = row; }

private:
    bool step(Reader& r) {
        const std::uint8_t op = r.byte(), low = op & 0x3f;
        switch (op & 0xc0) {
            case 0x40: advance(low); return true;
            case 0x80:
                place(low, Place::at_cfa,
                      static_cast<std::int64_t>(r.unsigned_leb()) * cie_.data_align);
                return true;
            case 0xc0: restore(low); return true;
            default: return extended(low, r);
        }
    }

    bool extended(std::uint8_t op, Reader& r) {
        switch (op) {
            case 0x00: return true;
            case 0x01: return false;  // DW_CFA_set_loc: no compiler for Linux writes it
            case 0x02: advance(r.byte()); return true;
            case 0x03: advance(r.raw<std::uint16_t>()); return true;
            case 0x04: advance(r.raw<std::uint32_t>()); return true;
            case 0x05: return offset(r, static_cast<std::int64_t>(r.unsigned_leb()), false);
            case 0x06: restore(r.unsigned_leb()); return true;
            case 0x07: place(r.unsigned_leb(), Place::undefined); return true;
            case 0x08: place(r.unsigned_leb(), Place::same); return true;
            case 0x09:
                place(r.unsigned_leb(), Place::elsewhere);
                r.unsigned_leb();
                return true;
            case 0x0a: return remember();
            case 0x0b: return recall();
            case 0x0c:
                define(static_cast<int>(r.unsigned_leb()), 0);
                row.offset = static_cast<std::int64_t>(r.unsigned_leb());
                return true;
            case 0x0d: define(static_cast<int>(r.unsigned_leb()), row.offset); return true;
            case 0x0e: row.offset = static_cast<std::int64_t>(r.unsigned_leb()); return true;
            case 0x0f:
                row.expression = r.part(r.unsigned_leb());
                row.has_expression = true;
                return true;
            case 0x10: return by_expression(r, Place::expression);
            case 0x11: return offset(r, static_cast<std::int64_t>(r.unsigned_leb()), true);
            case 0x12:
                define(static_cast<int>(r.unsigned_leb()), 0);
                row.offset = r.signed_leb() * cie_.data_align;
                return true;
            case 0x13: row.offset = r.signed_leb() * cie_.data_align; return true;
            case 0x14:
                place(r.unsigned_leb(), Place::elsewhere);
                r.unsigned_leb();
                return true;
            case 0x15:
                place(r.unsigned_leb(), Place::elsewhere);
                r.signed_leb();
                return true;
            case 0x16: return by_expression(r, Place::elsewhere);
            case 0x2d:
                return !calls_push;  // AARCH64_negate_ra_state: signed from here on, or no more
            case 0x2e: r.unsigned_leb(); return true;  // GNU_args_size
            default: return false;
        }
    }

    bool offset(Reader& r, std::int64_t reg, bool is_signed) {
        const std::int64_t factor =
            is_signed ? r.signed_leb() : static_cast<std::int64_t>(r.unsigned_leb());
        place(static_cast<std::uint64_t>(reg), Place::at_cfa, factor * cie_.data_align);
        return true;
    }
    bool by_expression(Reader& r, Place::Kind kind) {
        const std::uint64_t reg = r.unsigned_leb();
        const Reader block = r.part(r.unsigned_leb());
        place(reg, kind, 0, block);
        return true;
    }
    void advance(std::uint64_t delta) {
        location_ += delta * cie_.code_align;
        if (location_ > address_) past_ = true;
    }
    void define(int base, std::int64_t offset) {
        row.base = base;
        row.offset = offset;
        row.has_expression = false;
    }
    void place(std::uint64_t reg, Place::Kind kind, std::int64_t offset = 0,
               Reader block = {nullptr, nullptr}) {
        if (reg == reg_bp) row.bp = {kind, offset, block};
        if (reg == reg_ra) row.ra = {kind, offset, block};
    }
    void restore(std::uint64_t reg) {
        if (reg == reg_bp) row.bp = initial_.bp;
        if (reg == reg_ra) row.ra = initial_.ra;
    }
    bool remember() {
        if (depth_ == max_depth) return false;
        remembered_[depth_++] = row;
        return true;
    }
    bool recall() {
        if (depth_ == 0) return false;
        row = remembered_[--depth_];
        return true;
    }

    static constexpr int max_depth = 8;
    const Common& cie_;
    std::uint64_t location_, address_;
    bool past_ = false;
    Row initial_{};
    Row remembered_[max_depth]{};
    int depth_ = 0;
};

constexpr std::uint8_t op_deref = 0x06, op_breg0 = 0x70;

// "BP + k", as GCC writes where a realigned frame saved RBP; nothing else.
bool bp_plus(Reader block, std::int64_t& k) {
    if (block.byte() != op_breg0 + reg_bp) return false;
    k = block.signed_leb();
    return block.done() && !block.bad();
}

// "*(BP + k)", as GCC writes the CFA of a realigned frame.
bool deref_bp_plus(Reader block, std::int64_t& k) {
    if (block.byte() != op_breg0 + reg_bp) return false;
    k = block.signed_leb();
    return block.byte() == op_deref && block.done() && !block.bad();
}

// The linker's expression for a PLT entry: SP + 8, and 8 more once its push has been executed.
bool plt(Reader block, std::uint64_t address, std::int64_t& k) {
    static constexpr std::uint8_t linker[] = {0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a,
                                              0x3b, 0x2a, 0x33, 0x24, 0x22};
    if (static_cast<std::size_t>(block.end() - block.at()) != sizeof linker) return false;
    for (std::size_t i = 0; i < sizeof linker; ++i)
        if (i != 6 && block.at()[i] != linker[i]) return false;
    const unsigned pushed_from =
        block.at()[6] - 0x30u;  // DW_OP_lit0 + the offset of the instruction after the push
    k = 8 + ((address & 15) >= pushed_from ? 8 : 0);
    return true;
}

bool fits(std::int64_t value) { return value == static_cast<std::int32_t>(value); }

Rule reduce(const Row& row, const Common& cie, std::uint64_t address) {
    Rule rule;
    rule.kind = RuleKind::unsupported;
    if (row.ra.kind == Place::undefined) {
        rule.kind = RuleKind::last;
        return rule;
    }
    if (cie.is_signal) {
        rule.kind = RuleKind::signal;
        return rule;
    }
    if (row.ra.kind == Place::at_cfa ? !fits(row.ra.offset) || (calls_push && row.ra.offset != -8)
                                     : calls_push || row.ra.kind != Place::same)
        return rule;
    rule.ra =
        row.ra.kind == Place::at_cfa ? static_cast<std::int32_t>(row.ra.offset) : Rule::in_register;
    std::int64_t cfa = row.offset, bp = 0;
    RuleKind kind = row.base == reg_sp ? RuleKind::from_sp : RuleKind::from_bp;
    if (row.has_expression) {
        if (deref_bp_plus(row.expression, cfa)) kind = RuleKind::from_bp_deref;
        else if (calls_push && plt(row.expression, address, cfa)) kind = RuleKind::from_sp;
        else return rule;
    } else if (row.base != reg_sp && row.base != reg_bp) {
        return rule;
    }
    if (row.bp.kind == Place::at_cfa) {
        rule.saved = SavedBp::at_cfa;
        bp = row.bp.offset;
    } else if (row.bp.kind == Place::expression && bp_plus(row.bp.block, bp)) {
        rule.saved = SavedBp::at_bp;
    } else if (row.bp.kind != Place::same && row.bp.kind != Place::undefined) {
        return rule;
    }
    if (!fits(cfa) || !fits(bp)) return rule;
    rule.kind = kind;
    rule.cfa = static_cast<std::int32_t>(cfa);
    rule.bp = static_cast<std::int32_t>(bp);
    return rule;
}

// The FDE of `address` by the sorted table of .eh_frame_hdr; null when there is none.
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
    if (r.bad() || count == 0 || count > static_cast<std::uint64_t>(limit - r.at()) / sizeof(Entry))
        return nullptr;
    const auto entry = [table = r.at()](std::uint64_t k) {
        Entry e;
        std::memcpy(&e, table + k * sizeof e, sizeof e);
        return e;
    };
    const auto wanted = static_cast<std::int64_t>(address - base);
    std::uint64_t low = 0, high = count;  // entry(low) begins at or before; entry(high) after
    if (entry(0).location > wanted) return nullptr;
    while (high - low > 1) {
        const std::uint64_t middle = low + (high - low) / 2;
        (entry(middle).location <= wanted ? low : high) = middle;
    }
    return header + entry(low).fde;
}

struct Mapped {
    const std::uint8_t *begin, *end;

    bool holds(const std::uint8_t* at) const { return at >= begin && at < end; }
};

// What of an object holds its tables. Where a program's segments lie apart, the loader tells that
// of the code alone; only the kernel maps so, and it tells the program's headers.
Mapped tables_of(const dl_find_object& object) {
    const auto* tables = static_cast<const std::uint8_t*>(object.dlfo_eh_frame);
    const Mapped code{static_cast<const std::uint8_t*>(object.dlfo_map_start),
                      static_cast<const std::uint8_t*>(object.dlfo_map_end)};
    if (code.holds(tables) || object.dlfo_link_map->l_name[0] != 0) return code;
    const auto* header = reinterpret_cast<const ElfW(Phdr)*>(getauxval(AT_PHDR));
    for (unsigned long k = 0; header != nullptr && k < getauxval(AT_PHNUM); ++k) {
        const auto* begin =
            reinterpret_cast<const std::uint8_t*>(object.dlfo_link_map->l_addr + header[k].p_vaddr);
        if (const Mapped segment{begin, begin + header[k].p_memsz};
            header[k].p_type == PT_LOAD && segment.holds(tables))
            return segment;
    }
    return code;
}

Rule read_row(std::uint64_t address) {
    dl_find_object object{};
    if (_dl_find_object(reinterpret_cast<void*>(address), &object) != 0 ||
        object.dlfo_eh_frame == nullptr)
        return {};
    const auto [begin, limit] = tables_of(object);
    const auto* header = static_cast<const std::uint8_t*>(object.dlfo_eh_frame);
    if (header < begin || header >= limit) return {};
    const std::uint8_t* at = find_fde(header, limit, address);
    if (at == nullptr || at < begin || at >= limit) return {};

    Reader whole(at, limit);
    const auto length = whole.raw<std::uint32_t>();
    if (length == 0 || length == 0xffffffff) return {};
    Reader fde = whole.part(length);
    const std::uint8_t* back = fde.at();
    const std::uint8_t* cie_at = back - fde.raw<std::uint32_t>();
    Common cie;
    if (cie_at < begin || cie_at >= limit || !read_common(cie_at, limit, cie)) return {};
    const std::uint64_t from = fde.pointer(cie.encoding, 0);
    const std::uint64_t range = fde.pointer(cie.encoding & 0x0f, 0);
    if (fde.bad() || address < from || address - from >= range) return {};
    if (cie.has_data) fde.skip(fde.unsigned_leb());

    Machine machine(cie, from, address);
    Rule unsupported;
    unsupported.kind = RuleKind::unsupported;
    // The CIE's own instructions hold from the first address on.
    if (!machine.run({cie.begin, cie.end})) return unsupported;
    machine.keep_initial();
    if (!machine.run({fde.at(), fde.end()}) || fde.bad()) return unsupported;
    return reduce(machine.row, cie, address);
}

}  // namespace

Rule read_rule(std::uint64_t address) {
    const Rule rule = read_row(address);
    if (rule.kind != RuleKind::unknown || !keeps_frame_pointer(address)) return rule;
    return {.cfa = 16, .bp = -16, .kind = RuleKind::by_code, .saved = SavedBp::at_cfa};
}

}  // namespace assay::stack
