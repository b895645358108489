#include "profile/analyse/symbols.hpp"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>

#include "profile/analyse/demangle.hpp"
#include "profile/analyse/symbol_table.hpp"

namespace assay::heap {
namespace {

char* debuginfo_path =
    nullptr;  // default search: .debug beside the object, /usr/lib/debug by build-id
const Dwfl_Callbacks callbacks = {
    .find_elf = dwfl_build_id_find_elf,
    .find_debuginfo = dwfl_standard_find_debuginfo,
    .section_address = dwfl_offline_section_address,
    .debuginfo_path = &debuginfo_path,
};

#if defined(__aarch64__)
constexpr unsigned stack_pointer = 31;  // DWARF register number
#else
constexpr unsigned stack_pointer = 7;
#endif

std::string name_of(Dwarf_Die* die) {
    Dwarf_Attribute attribute;
    for (const unsigned attribute_name : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name})
        if (const char* name =
                dwarf_formstring(dwarf_attr_integrate(die, attribute_name, &attribute));
            name != nullptr)
            return demangled(name);
    return "";
}

std::string hex(const std::string& bytes) {
    std::string text;
    for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
    return text;
}

constexpr std::size_t max_name_bytes = 1000;  // std::regex recurses for each character

// An address outside of all objects: mostly code that was generated at run time without a name.
constexpr const char* unknown_code = "(unknown code)";

// V8 writes kind, optimisation level, name and source position: "JS:*name file:12:3". Names of
// other generators are not changed.
Location jit_location(const std::string& name) {
    static const std::regex by_v8(
        "^(?:JS|Function|LazyCompile|Script|Eval):[~^*+-]?(.*) (?:file://)?([^ "
        "]+):([0-9]+):[0-9]+$");
    std::smatch parts;
    if (!std::regex_match(name, parts, by_v8)) return {name, "", 0, "", false};
    return {parts[1].length() > 0 ? parts[1].str() : "(anonymous)", parts[2],
            static_cast<int>(std::strtol(parts[3].str().c_str(), nullptr, 10)), "", false};
}

}  // namespace

struct Symbols::Module {
    std::uint64_t bias = 0, begin = 0, end = 0;
    std::string id, path;
    Dwfl* dwfl = nullptr;
    Dwfl_Module* module = nullptr;
    std::uint64_t offline = 0;  // what elfutils adds to the object's addresses
    bool opened = false;
    std::optional<SymbolTable> names;  // read at first use

    ~Module() {
        if (dwfl != nullptr) dwfl_end(dwfl);
    }

    // False when the object is gone or has another build ID now, or is no regular file: opening a
    // FIFO would wait for a writer.
    bool open() {
        if (opened) return module != nullptr;
        opened = true;
        std::error_code error;
        if (!std::filesystem::is_regular_file(path, error)) return false;
        dwfl = dwfl_begin(&callbacks);
        if (dwfl == nullptr) return false;
        Dwfl_Module* reported = dwfl_report_offline(dwfl, path.c_str(), path.c_str(), -1);
        dwfl_report_end(dwfl, nullptr, nullptr);
        GElf_Addr module_offset = 0;
        if (reported == nullptr || dwfl_module_getelf(reported, &module_offset) == nullptr)
            return false;
        const unsigned char* build_id = nullptr;
        GElf_Addr build_id_address = 0;
        const int n = dwfl_module_build_id(reported, &build_id, &build_id_address);
        if (n > 0 && id != "-" &&
            hex(std::string(reinterpret_cast<const char*>(build_id),
                            static_cast<std::size_t>(n))) != id)
            return false;
        offline = module_offset;
        module = reported;
        return true;
    }
};

Symbols::Symbols() = default;
Symbols::~Symbols() = default;

void Symbols::add_modules(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields(line);
        auto added = std::make_unique<Module>();
        fields >> std::hex >> added->bias >> added->begin >> added->end >> added->id;
        std::getline(fields >> std::ws, added->path);
        if (!fields || added->path.empty() || added->begin >= added->end) continue;
        const bool is_known = std::ranges::any_of(modules_, [&](const auto& module) {
            return module->begin == added->begin && module->path == added->path;
        });
        if (!is_known) modules_.push_back(std::move(added));
    }
}

void Symbols::add_jit_functions(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields(line);
        std::uint64_t begin = 0, bytes = 0;
        std::string name;
        fields >> std::hex >> begin >> bytes;
        std::getline(fields >> std::ws, name);
        if (!fields || name.empty()) continue;
        name.resize(std::min(name.size(), max_name_bytes));
        auto overlapping = jit_functions_.lower_bound(begin);
        if (overlapping != jit_functions_.begin() && std::prev(overlapping)->second.end > begin)
            --overlapping;
        while (overlapping != jit_functions_.end() && overlapping->first < begin + bytes)
            overlapping = jit_functions_.erase(overlapping);  // replaced code
        jit_functions_[begin] = {begin + bytes, jit_location(name)};
    }
}

Symbols::Module* Symbols::module_of(std::uint64_t address) const {
    for (const auto& module : modules_)
        if (address >= module->begin && address < module->end) return module.get();
    return nullptr;
}

std::string_view Symbols::object_of(std::uint64_t address) const {
    const Module* module = module_of(address);
    return module != nullptr ? std::string_view(module->path) : std::string_view();
}

std::vector<Symbols::Object> Symbols::objects() {
    std::vector<Object> result;
    for (const auto& module : modules_)
        if (module->open())
            result.push_back({module->path, module->bias, module->begin, module->end,
                              module->offline, module->module});
    return result;
}

const std::vector<Location>& Symbols::find(std::uint64_t address) {
    const auto [entry, is_new] = resolved_.try_emplace(address);
    if (is_new) entry->second = resolve(address);
    return entry->second;
}

std::optional<std::uint64_t> Symbols::return_address_offset(std::uint64_t address) {
    const auto [entry, is_new] = return_address_offsets_.try_emplace(address);
    if (is_new) entry->second = read_return_address_offset(address);
    return entry->second;
}

// From the unwind table (DWARF 5, section 6.4): the offset of the canonical frame address (CFA)
// from the stack pointer, plus the offset of the return address from the CFA.
std::optional<std::uint64_t> Symbols::read_return_address_offset(std::uint64_t address) {
    Module* module = module_of(address);
    if (module == nullptr || !module->open()) return std::nullopt;
    Dwarf_Addr bias = 0;
    Dwarf_CFI* table = dwfl_module_eh_cfi(module->module, &bias);
    Dwarf_Frame* frame = nullptr;
    if (table == nullptr ||
        dwarf_cfi_addrframe(table, address - module->bias + module->offline - bias, &frame) != 0)
        return std::nullopt;
    const std::unique_ptr<Dwarf_Frame, decltype(&std::free)> frame_owner(frame, &std::free);
    Dwarf_Op *cfa = nullptr, *saved = nullptr, buffer[3];
    std::size_t cfa_count = 0, saved_count = 0;
    const int column = dwarf_frame_info(frame, nullptr, nullptr, nullptr);
    if (column < 0 || dwarf_frame_cfa(frame, &cfa, &cfa_count) != 0 || cfa_count != 1)
        return std::nullopt;
    if (cfa->atom != DW_OP_bregx || cfa->number != stack_pointer) return std::nullopt;
    if (dwarf_frame_register(frame, column, buffer, &saved, &saved_count) != 0 || saved_count != 2)
        return std::nullopt;
    if (saved[0].atom != DW_OP_call_frame_cfa || saved[1].atom != DW_OP_plus_uconst)
        return std::nullopt;
    return cfa->number2 + saved[1].number;
}

std::vector<Location> Symbols::resolve(std::uint64_t address) {
    Module* module = module_of(address);
    if (module == nullptr) {
        const auto next = jit_functions_.upper_bound(address);
        if (next != jit_functions_.begin() && address < std::prev(next)->second.end)
            return {std::prev(next)->second.location};
        return {{unknown_code, "", 0, "", false}};
    }
    const std::string unknown = fmt::format(
        "{}+0x{:x}", module->path.substr(module->path.rfind('/') + 1), address - module->bias);
    if (!module->open()) {
        if (std::ranges::find(missing_, module->path) == missing_.end())
            missing_.push_back(module->path);
        return {{unknown, "", 0, module->path, false}};
    }
    const Dwarf_Addr object_address = address - module->bias + module->offline;
    Location location{"", "", 0, module->path, false};
    std::vector<Location> locations;
    Dwarf_Addr debug_bias = 0;
    Dwarf_Die* unit = dwfl_module_addrdie(module->module, object_address, &debug_bias);
    if (unit != nullptr && dwarf_haspc(unit, object_address - debug_bias) != 1) unit = nullptr;
    // Outside of all units elfutils returns the last line of the unit before.
    if (Dwfl_Line* line =
            unit != nullptr ? dwfl_module_getsrc(module->module, object_address) : nullptr;
        line != nullptr)
        if (const char* file =
                dwfl_lineinfo(line, nullptr, &location.line, nullptr, nullptr, nullptr);
            file != nullptr)
            location.file = file;
    Dwarf_Die *scopes = nullptr, *nesting = nullptr;
    const int depth =
        unit != nullptr ? dwarf_getscopes(unit, object_address - debug_bias, &scopes) : 0;
    const int nested = depth > 0 ? dwarf_getscopes_die(&scopes[0], &nesting) : 0;
    for (int k = 0; k < nested; ++k) {
        const int tag = dwarf_tag(&nesting[k]);
        if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) continue;
        location.function = name_of(&nesting[k]);
        location.inlined = tag == DW_TAG_inlined_subroutine;
        if (!location.function.empty()) locations.push_back(location);
        if (tag == DW_TAG_subprogram) break;
        // The location of the call that was inlined.
        Dwarf_Attribute attribute;
        Dwarf_Word number = 0;
        Dwarf_Files* files = nullptr;
        location.file.clear();
        location.line = 0;
        if (dwarf_formudata(dwarf_attr(&nesting[k], DW_AT_call_line, &attribute), &number) == 0)
            location.line = static_cast<int>(number);
        if (dwarf_formudata(dwarf_attr(&nesting[k], DW_AT_call_file, &attribute), &number) == 0 &&
            dwarf_getsrcfiles(unit, &files, nullptr) == 0)
            if (const char* file = dwarf_filesrc(files, number, nullptr, nullptr); file != nullptr)
                location.file = file;
    }
    std::free(scopes);
    std::free(nesting);
    if (!locations.empty()) return locations;
    if (!module->names) module->names.emplace(module->module);
    const char* name = module->names->find(object_address);
    location.function = name != nullptr ? demangled(name) : unknown;
    return {location};
}

}  // namespace assay::heap
