#include "profile/analyse/symbols.hpp"

#include <cxxabi.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <sstream>

#include "profile/analyse/names.hpp"

namespace assay::heap {
namespace {

char* debuginfo_path =
    nullptr;  // elfutils' own: .debug beside the object, /usr/lib/debug by build-id
const Dwfl_Callbacks callbacks = {
    .find_elf = dwfl_build_id_find_elf,
    .find_debuginfo = dwfl_standard_find_debuginfo,
    .section_address = dwfl_offline_section_address,
    .debuginfo_path = &debuginfo_path,
};

#if defined(__aarch64__)
constexpr unsigned stack_pointer = 31;  // as DWARF numbers registers
#else
constexpr unsigned stack_pointer = 7;
#endif

std::string demangled(const char* name) {
    int status = 0;
    if (name[0] != '_' || name[1] != 'Z')
        return name;  // a function of C's named t is not "unsigned short"
    char* words = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    const std::string text = status == 0 && words != nullptr ? words : name;
    std::free(words);
    return text;
}

std::string name_of(Dwarf_Die* die) {
    Dwarf_Attribute attribute;
    for (const unsigned which : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name})
        if (const char* name = dwarf_formstring(dwarf_attr_integrate(die, which, &attribute));
            name != nullptr)
            return demangled(name);
    return "";
}

std::string hex(const std::string& bytes) {
    std::string text;
    for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
    return text;
}

constexpr std::size_t longest_name =
    1000;  // bytes; a regular expression goes as deep as a text is long

// Made at run time, mostly, and named by nobody: its address tells nothing, once the process has
// ended.
constexpr const char* unknown_code = "(unknown code)";

// V8 says what it has made, how well, and of which lines: "JS:*name file:12:3". Others' names are
// whole.
Place place_made(const std::string& name) {
    static const std::regex by_v8(
        "^(?:JS|Function|LazyCompile|Script|Eval):[~^*+-]?(.*) (?:file://)?([^ "
        "]+):([0-9]+):[0-9]+$");
    std::smatch parts;
    if (!std::regex_match(name, parts, by_v8)) return {name, "", 0, "", false};
    return {parts[1].length() > 0 ? parts[1].str() : "(anonymous)", parts[2],
            std::atoi(parts[3].str().c_str()), "", false};
}

}  // namespace

struct Symbols::Module {
    std::uint64_t bias = 0, begin = 0, end = 0;
    std::string id, path;
    Dwfl* dwfl = nullptr;
    Dwfl_Module* module = nullptr;
    std::uint64_t offline = 0;  // what elfutils adds to the object's own addresses
    bool opened = false;
    std::optional<Names> names;  // once they are asked for

    ~Module() {
        if (dwfl != nullptr) dwfl_end(dwfl);
    }

    // False when the object is gone, or is another one now.
    bool open() {
        if (opened) return module != nullptr;
        opened = true;
        dwfl = dwfl_begin(&callbacks);
        if (dwfl == nullptr) return false;
        Dwfl_Module* found = dwfl_report_offline(dwfl, path.c_str(), path.c_str(), -1);
        dwfl_report_end(dwfl, nullptr, nullptr);
        GElf_Addr added = 0;
        if (found == nullptr || dwfl_module_getelf(found, &added) == nullptr) return false;
        const unsigned char* bytes = nullptr;
        GElf_Addr where = 0;
        const int n = dwfl_module_build_id(found, &bytes, &where);
        if (n > 0 && id != "-" &&
            hex(std::string(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n))) !=
                id)
            return false;
        offline = added;
        module = found;
        return true;
    }
};

Symbols::Symbols() = default;
Symbols::~Symbols() = default;

void Symbols::add_modules(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields(line);
        auto one = std::make_unique<Module>();
        fields >> std::hex >> one->bias >> one->begin >> one->end >> one->id;
        std::getline(fields >> std::ws, one->path);
        if (!fields || one->path.empty() || one->begin >= one->end) continue;
        const bool known = std::ranges::any_of(modules_, [&](const auto& m) {
            return m->begin == one->begin && m->path == one->path;
        });
        if (!known) modules_.push_back(std::move(one));
    }
}

void Symbols::add_code(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields(line);
        std::uint64_t begin = 0, bytes = 0;
        std::string name;
        fields >> std::hex >> begin >> bytes;
        std::getline(fields >> std::ws, name);
        if (!fields || name.empty()) continue;
        name.resize(std::min(name.size(), longest_name));
        auto at = made_.lower_bound(begin);
        if (at != made_.begin() && std::prev(at)->second.end > begin) --at;
        while (at != made_.end() && at->first < begin + bytes)
            at = made_.erase(at);  // what stood there before
        made_[begin] = {begin + bytes, place_made(name)};
    }
}

Symbols::Module* Symbols::module_of(std::uint64_t address) const {
    for (const auto& one : modules_)
        if (address >= one->begin && address < one->end) return one.get();
    return nullptr;
}

std::string_view Symbols::object_at(std::uint64_t address) const {
    const Module* m = module_of(address);
    return m != nullptr ? std::string_view(m->path) : std::string_view();
}

std::vector<Symbols::Object> Symbols::objects() {
    std::vector<Object> found;
    for (const auto& one : modules_)
        if (one->open())
            found.push_back(
                {one->path, one->bias, one->begin, one->end, one->offline, one->module});
    return found;
}

const std::vector<Place>& Symbols::find(std::uint64_t address) {
    const auto [found, is_new] = known_.try_emplace(address);
    if (is_new) found->second = resolve(address);
    return found->second;
}

std::optional<std::uint64_t> Symbols::return_at(std::uint64_t address) {
    const auto [found, is_new] = returns_.try_emplace(address);
    if (is_new) found->second = read_return(address);
    return found->second;
}

// What DWARF tells of the frame (DWARF 5, section 6.4): how far above the stack pointer it begins,
// and how far from there the caller's address was put.
std::optional<std::uint64_t> Symbols::read_return(std::uint64_t address) {
    Module* m = module_of(address);
    if (m == nullptr || !m->open()) return std::nullopt;
    Dwarf_Addr bias = 0;
    Dwarf_CFI* table = dwfl_module_eh_cfi(m->module, &bias);
    Dwarf_Frame* frame = nullptr;
    if (table == nullptr ||
        dwarf_cfi_addrframe(table, address - m->bias + m->offline - bias, &frame) != 0)
        return std::nullopt;
    const std::unique_ptr<Dwarf_Frame, decltype(&std::free)> kept(frame, &std::free);
    Dwarf_Op *begin = nullptr, *saved = nullptr, room[3];
    std::size_t begin_count = 0, saved_count = 0;
    const int column = dwarf_frame_info(frame, nullptr, nullptr, nullptr);
    if (column < 0 || dwarf_frame_cfa(frame, &begin, &begin_count) != 0 || begin_count != 1)
        return std::nullopt;
    if (begin->atom != DW_OP_bregx || begin->number != stack_pointer) return std::nullopt;
    if (dwarf_frame_register(frame, column, room, &saved, &saved_count) != 0 || saved_count != 2)
        return std::nullopt;
    if (saved[0].atom != DW_OP_call_frame_cfa || saved[1].atom != DW_OP_plus_uconst)
        return std::nullopt;
    return begin->number2 + saved[1].number;
}

std::vector<Place> Symbols::resolve(std::uint64_t address) {
    Module* m = module_of(address);
    if (m == nullptr) {
        const auto next = made_.upper_bound(address);
        if (next != made_.begin() && address < std::prev(next)->second.end)
            return {std::prev(next)->second.place};
        return {{unknown_code, "", 0, "", false}};
    }
    const std::string unknown =
        fmt::format("{}+0x{:x}", m->path.substr(m->path.rfind('/') + 1), address - m->bias);
    if (!m->open()) {
        if (std::ranges::find(missing_, m->path) == missing_.end()) missing_.push_back(m->path);
        return {{unknown, "", 0, m->path, false}};
    }
    const Dwarf_Addr at = address - m->bias + m->offline;
    Place place{"", "", 0, m->path, false};
    std::vector<Place> places;
    Dwarf_Addr debug_bias = 0;
    Dwarf_Die* unit = dwfl_module_addrdie(m->module, at, &debug_bias);
    if (unit != nullptr && dwarf_haspc(unit, at - debug_bias) != 1) unit = nullptr;
    // Outside of any unit it would be the last line of the one before.
    if (Dwfl_Line* line = unit != nullptr ? dwfl_module_getsrc(m->module, at) : nullptr;
        line != nullptr)
        if (const char* file = dwfl_lineinfo(line, nullptr, &place.line, nullptr, nullptr, nullptr);
            file != nullptr)
            place.file = file;
    Dwarf_Die *scopes = nullptr, *nest = nullptr;
    const int depth = unit != nullptr ? dwarf_getscopes(unit, at - debug_bias, &scopes) : 0;
    const int nested = depth > 0 ? dwarf_getscopes_die(&scopes[0], &nest) : 0;
    for (int k = 0; k < nested; ++k) {
        const int tag = dwarf_tag(&nest[k]);
        if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) continue;
        place.function = name_of(&nest[k]);
        place.inlined = tag == DW_TAG_inlined_subroutine;
        if (!place.function.empty()) places.push_back(place);
        if (tag == DW_TAG_subprogram) break;
        // Where it was inlined to.
        Dwarf_Attribute attribute;
        Dwarf_Word number = 0;
        Dwarf_Files* files = nullptr;
        place.file.clear();
        place.line = 0;
        if (dwarf_formudata(dwarf_attr(&nest[k], DW_AT_call_line, &attribute), &number) == 0)
            place.line = static_cast<int>(number);
        if (dwarf_formudata(dwarf_attr(&nest[k], DW_AT_call_file, &attribute), &number) == 0 &&
            dwarf_getsrcfiles(unit, &files, nullptr) == 0)
            if (const char* file = dwarf_filesrc(files, number, nullptr, nullptr); file != nullptr)
                place.file = file;
    }
    std::free(scopes);
    std::free(nest);
    if (!places.empty()) return places;
    if (!m->names) m->names.emplace(m->module);
    const char* name = m->names->find(at);
    place.function = name != nullptr ? demangled(name) : unknown;
    return {place};
}

}  // namespace assay::heap
