// Finds the CPython interpreter of this process, and follows its loading and unloading.
#include "profile/heap/python.hpp"

#include <atomic>

#include "profile/heap/exports.hpp"
#include "profile/heap/hooks.hpp"
#include "profile/heap/object.hpp"
#include "profile/heap/process.hpp"
#include "profile/heap/python_interpreter.hpp"

namespace assay::heap {

std::atomic<bool> python_ready{false}, python_pending{false};
Interpreter python;

namespace {

constexpr Layout layouts[] = {
    {0x030b, 152, 56, 8, 16, 32, 48, 56, 68, 72, 112, 120, 128, 184, 48, 72},
    {0x030c, 136, 56, 0, absent, 0, 8, 56, 70, 68, 112, 120, 128, 192, 40, 56},
    {0x030d, 152, absent, 72, absent, 0, 8, 56, 70, 68, 112, 120, 128, 200, 40, 56},
};
// From 3.13 on _PyRuntime begins with _Py_DebugOffsets: cookie 8, version 8, free-threaded 8.
constexpr std::uint32_t without_gil_offset = 16;

// PY_VERSION_HEX of an unsupported interpreter; 1: before 3.11.
std::uint32_t unsupported_version = 0;
std::atomic<bool> is_unsupported_reported{false};
std::atomic<int> unloading{0};  // number of objects that are being unloaded

template <class F>
bool find_symbol(F& target, const Exports& exports, const char* name) {
    target = reinterpret_cast<F>(exports.find(name));
    return target != F{};
}

// Finds the interpreter's functions. Some have another name in earlier versions.
bool find_functions(Interpreter& target, const Exports& exports) {
    const auto find_any = [&](auto& function, const char* name, const char* earlier) {
        return find_symbol(function, exports, name) || find_symbol(function, exports, earlier);
    };
    return find_symbol(target.get_thread_state, exports, "PyGILState_GetThisThreadState") &&
           find_symbol(target.line_of, exports, "PyCode_Addr2Line") &&
           find_any(target.get_current_state, "PyThreadState_GetUnchecked",
                    "_PyThreadState_UncheckedGet") &&
           find_any(target.is_finalizing, "Py_IsFinalizing", "_Py_IsFinalizing") &&
           find_symbol(target.code_type, exports, "PyCode_Type") &&
           find_symbol(target.string_type, exports, "PyUnicode_Type");
}

bool has_gil(const Layout& layout, const Exports& exports) {
    if (layout.cframe != absent) return true;
    const std::uint64_t runtime = exports.find("_PyRuntime");
    return runtime != 0 && load64(runtime + without_gil_offset) == 0;
}

// Callback of dl_iterate_phdr: whether the object contains the address.
int object_contains(dl_phdr_info* object, std::size_t, void* address) {
    const std::uint64_t offset = reinterpret_cast<std::uint64_t>(address) - object->dlpi_addr;
    for (int k = 0; k < object->dlpi_phnum; ++k)
        if (const auto& segment = object->dlpi_phdr[k];
            segment.p_type == PT_LOAD && offset - segment.p_vaddr < segment.p_memsz)
            return 1;
    return 0;
}

}  // namespace

void detect_python(const dl_phdr_info& object) {
    if (python.layout != nullptr) return;
    const Exports exports(object);
    const std::uint64_t version_address = exports.find("Py_Version");
    const std::uint32_t version = version_address != 0           ? load32(version_address)
                                  : exports.find("Py_Main") != 0 ? 1
                                                                 : 0;
    if (version == 0) return;
    const bool is_early = !is_relocated(object);
    python_pending.store(is_early, std::memory_order_relaxed);
    if (is_early) return;
    Interpreter interpreter{};
    for (const Layout& layout : layouts)
        if (layout.version == version >> 16) interpreter.layout = &layout;
    if (interpreter.layout == nullptr || !has_gil(*interpreter.layout, exports) ||
        !find_functions(interpreter, exports)) {
        unsupported_version = version;
        return;
    }
    interpreter.has_c_stack_frames = interpreter.layout->outer_cframe == absent;
    python = interpreter;
    unsupported_version = 0;
    // Invalidates memoised C stacks. They are walked again, which finds the frames that run Python.
    stack::generation.fetch_add(1, std::memory_order_release);
    python_ready.store(true, std::memory_order_release);
}

void report_unsupported_python(Thread& thread) {
    if (unsupported_version == 0 ||
        is_unsupported_reported.exchange(true, std::memory_order_relaxed))
        return;
    char buffer[64];
    Line line{buffer, buffer + sizeof buffer};
    line.put("unread ");
    if (unsupported_version == 1) {
        line.put("3.10 or older");
    } else {
        line.put_number(unsupported_version >> 24, 10);
        line.put('.');
        line.put_number(unsupported_version >> 16 & 0xff, 10);
    }
    line.put('\n');
    record_text(thread, Kind::python, buffer, static_cast<std::size_t>(line.cursor - buffer));
}

void pause_python() {
    unloading.fetch_add(1, std::memory_order_relaxed);
    python_ready.store(false, std::memory_order_release);
}

void resume_python() {
    if (python.layout != nullptr &&
        dl_iterate_phdr(object_contains, reinterpret_cast<void*>(python.get_thread_state)) == 0)
        python = {};
    const bool is_last = unloading.fetch_sub(1, std::memory_order_relaxed) == 1;
    if (is_last && python.layout != nullptr) python_ready.store(true, std::memory_order_release);
}

void reset_python() {
    is_unsupported_reported.store(false, std::memory_order_relaxed);
    forget_eval_frames();
}

}  // namespace assay::heap
