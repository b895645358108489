// Fuzz target: readers of the NUMA profiler: the event ring of a profiled program, the object files
// that the program maps, lists of processors, and the plan of placements to apply.
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "fuzz.hpp"
#include "profile/numa/hooks/apply.hpp"
#include "profile/numa/hooks/capture.hpp"
#include "profile/numa/hooks/tracker.hpp"
#include "profile/numa/record/process.hpp"

using namespace assay;
using namespace assay::numa;

using fuzz::append;

namespace {

constexpr std::uint32_t no_process = 0x7fffffff;  // above the kernel's largest process number
constexpr std::size_t max_events = 64, node_count = 64;

// --- The ring

// The file of a ring. It stays mapped, as in a profiled process.
struct Ring {
    Ring() : path(fuzz::unused_path() + ".ring") {
        const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, static_cast<off_t>(ring_bytes)) != 0) std::abort();
        void* all = mmap(nullptr, ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (all == MAP_FAILED) std::abort();
        memory = static_cast<char*>(all);
    }
    std::string path;
    char* memory;
};

Ring& ring() {
    static Ring made;
    return made;
}

struct PlainEvent {
    std::uint64_t ns;
    EventKind kind;
    std::uint32_t tid;
    std::uint64_t address, bytes, mask;
    std::uint32_t stack;
    std::int32_t mode;
    std::uint64_t more_mask, sequence;
};
static_assert(sizeof(PlainEvent) == sizeof(Event));

struct Fault {
    std::uint64_t address, ip, sp, bp;
    std::uint8_t executable, words;
    std::uint16_t tid;
};

// The input is the header of the ring, stack nodes, and pairs of an event and a page fault.
std::vector<Input> seed_rings() {
    Input input;
    append(input, ring_magic);
    for (const std::uint32_t pid : {no_process, 1u}) append(input, pid);
    for (const std::uint64_t head_or_tail : {7ull, 0ull}) append(input, head_or_tail);
    for (std::uint32_t k = 0; k < node_count; ++k)
        append(input, stack::Node{k == 0 ? 0 : k - 1, 0x1000u + 16 * k});
    const auto event = [&](std::uint64_t number, EventKind kind, std::uint64_t address,
                           std::uint64_t bytes) {
        append(input, PlainEvent{1000 * number, kind, 5, address, bytes, 3, 9, 3, 0, number});
        append(input, Fault{address + bytes / 2, 0x1100, 0x7000, 0x7010, 0, 4, 5});
    };
    event(1, EventKind::allocate, 0x10000, 0x4000);
    event(2, EventKind::map, 0x20000, 0x8000);
    event(3, EventKind::policy, 0x20000, 0x4000);
    event(4, EventKind::thread, 0x40000, 0x8000);
    event(5, EventKind::unmap, 0x20000, 0x1000);
    event(6, EventKind::affinity, 0, 0);
    event(7, EventKind::release, 0x10000, 0);
    return {input};
}

KernelEvent fault_of(const Fault& given, const KernelEvent& mapped) {
    KernelEvent event;
    event.pid = no_process;
    event.tid = given.tid;
    event.processor = given.executable;
    event.address = given.address;
    event.ip = given.ip, event.sp = given.sp, event.bp = given.bp;
    event.used_words = std::min<std::uint32_t>(given.words, stack_words);
    for (std::uint32_t k = 0; k < event.used_words; ++k) event.stack[k] = mapped.address + 16 * k;
    return event;
}

KernelEvent access_of(KernelEvent event) {
    event.kind = KernelEvent::Kind::access;
    event.source = read_data_source(event.address ^ event.ip);
    return event;
}

// Writes the recording of a process, and aborts if a line of it is not JSON.
void write_and_check(const Process& process) {
    const std::string folder = std::filesystem::path(ring().path).parent_path();
    const std::string path = folder + "/" + std::to_string(no_process) + ".0.numa";
    process.write(folder, 0, "", 0, {"cpu/mem-loads/", 1, 0});
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);)
        if (!nlohmann::json::accept(line)) std::abort();
    unlink(path.c_str());
}

void read_ring(const std::uint8_t* data, std::size_t size) {
    fuzz::InputReader parts(data, size);
    char* memory = ring().memory;
    auto* header = reinterpret_cast<RingHeader*>(memory);
    header->magic = parts.read<std::uint64_t>();
    header->pid = parts.read<std::int32_t>();
    header->parent = parts.read<std::int32_t>();
    header->head = parts.read<std::uint64_t>();
    header->tail = parts.read<std::uint64_t>();
    for (std::size_t k = 0; k < node_count; ++k) {
        const auto node = parts.read<stack::Node>();
        std::memcpy(memory + ring_nodes_offset + k * sizeof node, &node, sizeof node);
    }
    std::array<Fault, max_events> faults;
    const std::uint64_t tail = header->tail;
    for (std::size_t k = 0; k < max_events; ++k) {
        const auto event = parts.read<PlainEvent>();
        const std::size_t slot = (tail + k) % ring_events;
        std::memcpy(memory + ring_header_bytes + slot * sizeof event, &event, sizeof event);
        faults[k] = parts.read<Fault>();
    }
    static const Topology topology = read_topology(0), emulated = read_topology(3);
    const auto reader = std::make_shared<RingReader>(ring().path);
    Process process(reader->pid(), reader->parent(), 0, size % 2 == 0 ? topology : emulated, true);
    if (process.pid() != no_process) return;  // it would read the files of another process
    KernelEvent mapped;
    mapped.kind = KernelEvent::Kind::map;
    mapped.address = 0x1000, mapped.bytes = 0x1000;
    mapped.executable = true;
    mapped.name = FUZZ_OBJECT;
    process.handle(mapped);
    process.set_ring(reader);
    std::size_t count = 0;
    reader->drain([&](const Event& event) {
        process.handle(event);
        if (count < max_events) {
            const KernelEvent fault = fault_of(faults[count++], mapped);
            process.handle(fault);
            process.handle(access_of(fault));
        }
        if (count % 4 == 0) process.locate_touched_pages();
        if (count % 8 == 0) process.locate_accessed_pages();
    });
    if (count > max_events) std::abort();
    process.read_threads(1);
    process.scan_resident_pages(2);
    process.locate_touched_pages();
    process.locate_accessed_pages();
    if (process.wants_final_scan()) process.acknowledge_finish();
    Process child(no_process, 1, 0, topology, true);
    child.inherit(process);
    write_and_check(process);
}

// --- Object files that a program maps: their unwind tables are used to unwind stacks

std::vector<Input> seed_objects() {
    std::ifstream file(FUZZ_OBJECT, std::ios::binary);
    return {Input(std::istreambuf_iterator<char>(file), {})};
}

void read_object(const std::uint8_t* data, std::size_t size) {
    static const Topology topology = read_topology(2);
    Process process(no_process, 1, 0, topology, true);
    KernelEvent mapped;
    mapped.kind = KernelEvent::Kind::map;
    mapped.address = 0x1000, mapped.bytes = 0x3000;
    mapped.offset = 0x1000;
    mapped.executable = true;
    mapped.name = fuzz::write_input_file(data, size);
    process.handle(mapped);
    for (std::uint64_t ip = 0x1000; ip < 0x1400; ip += 61)
        process.handle(fault_of({0x100000 + (ip << 12), ip, 0x7000, 0x7010, 0, 16, 1}, mapped));
    process.locate_touched_pages();
    write_and_check(process);
}

// --- Lists

std::vector<Input> seed_lists() { return {fuzz::input_of("0-3,8"), fuzz::input_of("5,7-9")}; }

void read_list(const std::uint8_t* data, std::size_t size) {
    for (const int number : parse_list({data, data + size}))
        if (number < 0) std::abort();
}

// --- The plan: it is applied to blocks whose stacks may be in it

constexpr std::uint64_t page_bytes = 4096, plan_nodes = 4, call_offset = 0x1000;
constexpr std::uint64_t block_begin = 0x7000'0000'0800, block_bytes = 37 * page_bytes;
std::uint64_t applied_to = 0;  // the end of the pages that have a policy

// Where the program is loaded.
int find_program(dl_phdr_info* object, size_t, void* base) {
    *static_cast<std::uint64_t*>(base) = object->dlpi_addr;
    return 1;
}

std::vector<Input> seed_plans() {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string() + "\n";
    std::vector<Input> inputs;
    for (const char* action : {"interleave 0 ", "bind 3 ", "spread 0,1,2,3,3,0 "})
        inputs.push_back(
            fuzz::input_of(std::string("2000 bind 1 /bin/other\n1000 ") + action + program));
    return inputs;
}

void read_and_apply_plan(const std::uint8_t* data, std::size_t size) {
    setenv(plan_variable, fuzz::write_input_file(data, size).c_str(), 1);
    setenv("ASSAY_NUMA_NODES", std::to_string(plan_nodes).c_str(), 1);
    static const std::uint64_t program = [] {
        std::uint64_t base = 0;
        dl_iterate_phdr(find_program, &base);
        if (!stacks.reserve(64)) std::abort();
        return base;
    }();
    read_plan();
    for (const std::uint64_t offset : {call_offset, call_offset * 2, std::uint64_t{0}}) {
        const std::uint64_t calls[] = {program + offset, program + 0x500};
        const stack::StackId stack = stacks.insert(stack::complete_root, calls);
        applied_to = 0;
        apply_plan(reinterpret_cast<const void*>(block_begin), block_bytes, stack);
        apply_plan(reinterpret_cast<const void*>(block_begin), 1, stack);
    }
}

}  // namespace

// In place of the tracker of a profiled program.
namespace assay::numa {

stack::Tree stacks;

void* map_zeroed(std::size_t bytes) { return std::calloc(1, bytes); }

bool applies_policies() { return false; }

// The ranges are whole pages of the block, one after the other, on nodes that exist.
void track_policy(const void* address, std::size_t bytes, int, std::uint64_t nodes) {
    const auto begin = reinterpret_cast<std::uint64_t>(address);
    const bool is_inside = begin >= block_begin && begin >= applied_to && bytes > 0 &&
                           begin + bytes <= block_begin + block_bytes;
    if (!is_inside || begin % page_bytes != 0 || bytes % page_bytes != 0) std::abort();
    if (nodes == 0 || nodes >> plan_nodes != 0) std::abort();
    applied_to = begin + bytes;
}

}  // namespace assay::numa

std::vector<Reader> readers() {
    return {{"ring", seed_rings, read_ring},
            {"mapped", seed_objects, read_object},
            {"processors", seed_lists, read_list},
            {"plan", seed_plans, read_and_apply_plan}};
}
