// Resolves addresses with elfutils: symbol tables, debug information and unwind tables.
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

// The default search path: .debug beside the object, /usr/lib/debug by build-id.
char* debuginfo_path = nullptr;
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

std::string read_name(Dwarf_Die* die) {
    Dwarf_Attribute attribute;
    for (const unsigned attribute_name : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name})
        if (const char* name =
                dwarf_formstring(dwarf_attr_integrate(die, attribute_name, &attribute));
            name != nullptr)
            return demangle(name);
    return "";
}

// The directory in which a unit was compiled; null if the unit does not tell.
const char* compilation_directory(Dwarf_Die* unit) {
    Dwarf_Attribute attribute;
    return dwarf_formstring(dwarf_attr(unit, DW_AT_comp_dir, &attribute));
}

std::string to_hex(const std::string& bytes) {
    std::string text;
    for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
    return text;
}

constexpr std::size_t max_name_bytes = 1000;  // std::regex recurses for each character

// For addresses outside of all objects: mostly generated code without a name.
constexpr const char* unknown_code = "(unknown code)";

// V8 writes kind, optimisation level, name and source position: "JS:*name file:12:3". Names of
// other generators are not changed.
Location parse_jit_name(const std::string& name) {
    static const std::regex v8_name(
        "^(?:JS|Function|LazyCompile|Script|Eval):[~^*+-]?(.*) (?:file://)?([^ "
        "]+):([0-9]+):[0-9]+$");
    std::smatch parts;
    if (!std::regex_match(name, parts, v8_name)) return {name, "", 0, "", false};
    return {parts[1].length() > 0 ? parts[1].str() : "(anonymous)", parts[2],
            static_cast<int>(std::strtol(parts[3].str().c_str(), nullptr, 10)), "", false};
}

}  // namespace

std::string absolute_source(const char* file, const char* directory) {
    const std::string_view name = file;
    if (name.starts_with('/') || directory == nullptr || directory[0] != '/') return file;
    std::string path = directory;
    if (!path.ends_with('/')) path += '/';
    return path.append(name.starts_with("./") ? name.substr(2) : name);
}

struct Symbols::Module {
    std::uint64_t bias = 0, begin = 0, end = 0;
    std::string id, path;
    Dwfl* dwfl = nullptr;
    Dwfl_Module* module = nullptr;
    std::uint64_t offline = 0;  // offset that elfutils adds to the object's addresses
    bool was_opened = false;
    std::optional<SymbolTable> names;  // read at first use

    ~Module() {
        if (dwfl != nullptr) dwfl_end(dwfl);
    }

    // Opens the object. Returns false if it is missing, has another build ID now, or is not a
    // regular file (opening a FIFO would block).
    bool open() {
        if (was_opened) return module != nullptr;
        was_opened = true;
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
            to_hex(std::string(reinterpret_cast<const char*>(build_id),
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
        auto new_module = std::make_unique<Module>();
        fields >> std::hex >> new_module->bias >> new_module->begin >> new_module->end >>
            new_module->id;
        std::getline(fields >> std::ws, new_module->path);
        if (!fields || new_module->path.empty() || new_module->begin >= new_module->end) continue;
        const bool is_known = std::ranges::any_of(modules_, [&](const auto& module) {
            return module->begin == new_module->begin && module->path == new_module->path;
        });
        if (!is_known) modules_.push_back(std::move(new_module));
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
        jit_functions_[begin] = {begin + bytes, parse_jit_name(name)};
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

// Computes the offset from the unwind table (DWARF 5, section 6.4): the offset of the canonical
// frame address (CFA) from the stack pointer, plus that of the return address from the CFA.
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
    const std::string fallback_name = fmt::format(
        "{}+0x{:x}", module->path.substr(module->path.rfind('/') + 1), address - module->bias);
    if (!module->open()) {
        if (std::ranges::find(missing_, module->path) == missing_.end())
            missing_.push_back(module->path);
        return {{fallback_name, "", 0, module->path, false}};
    }
    const Dwarf_Addr object_address = address - module->bias + module->offline;
    Location location{"", "", 0, module->path, false};
    std::vector<Location> locations;
    Dwarf_Addr debug_bias = 0;
    Dwarf_Die* unit = dwfl_module_addrdie(module->module, object_address, &debug_bias);
    if (unit != nullptr && dwarf_haspc(unit, object_address - debug_bias) != 1) unit = nullptr;
    // For addresses outside of all units elfutils would return the last line of the previous unit.
    if (Dwfl_Line* line =
            unit != nullptr ? dwfl_module_getsrc(module->module, object_address) : nullptr;
        line != nullptr)
        if (const char* file =
                dwfl_lineinfo(line, nullptr, &location.line, nullptr, nullptr, nullptr);
            file != nullptr)
            location.file = absolute_source(file, dwfl_line_comp_dir(line));
    Dwarf_Die *scopes = nullptr, *enclosing_scopes = nullptr;
    const int depth =
        unit != nullptr ? dwarf_getscopes(unit, object_address - debug_bias, &scopes) : 0;
    const int enclosing_count = depth > 0 ? dwarf_getscopes_die(&scopes[0], &enclosing_scopes) : 0;
    for (int k = 0; k < enclosing_count; ++k) {
        const int tag = dwarf_tag(&enclosing_scopes[k]);
        if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) continue;
        location.function = read_name(&enclosing_scopes[k]);
        location.inlined = tag == DW_TAG_inlined_subroutine;
        if (!location.function.empty()) locations.push_back(location);
        if (tag == DW_TAG_subprogram) break;
        // The location of the call that was inlined.
        Dwarf_Attribute attribute;
        Dwarf_Word number = 0;
        Dwarf_Files* files = nullptr;
        location.file.clear();
        location.line = 0;
        if (dwarf_formudata(dwarf_attr(&enclosing_scopes[k], DW_AT_call_line, &attribute),
                            &number) == 0)
            location.line = static_cast<int>(number);
        if (dwarf_formudata(dwarf_attr(&enclosing_scopes[k], DW_AT_call_file, &attribute),
                            &number) == 0 &&
            dwarf_getsrcfiles(unit, &files, nullptr) == 0)
            if (const char* file = dwarf_filesrc(files, number, nullptr, nullptr); file != nullptr)
                location.file = absolute_source(file, compilation_directory(unit));
    }
    std::free(scopes);
    std::free(enclosing_scopes);
    if (!locations.empty()) return locations;
    if (!module->names) module->names.emplace(module->module);
    const char* name = module->names->find(object_address);
    location.function = name != nullptr ? demangle(name) : fallback_name;
    return {location};
}

}  // namespace assay::heap
