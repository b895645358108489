// SPDX-License-Identifier: GPL-2.0-or-later
//
// A plugin of QEMU's user mode: counts each load and store of an unmodified program by instruction,
// node of the thread and node of the page, in all of its libraries and on its stacks.
//
// The licence of this file is that of QEMU's plugin interface, whose functions it declares itself.
// It is a library of its own, loaded by QEMU alone; no other part of Assay links it. Each
// virtual processor, which is a thread in user mode, has its own counters, since QEMU's inline
// additions are not atomic. Guest addresses equal host addresses: QEMU needs no offset for a 64-bit
// guest.
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "profile/numa/exact/runtime.hpp"

extern "C" {
using qemu_plugin_id_t = std::uint64_t;
using qemu_plugin_meminfo_t = std::uint32_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info_t;
std::size_t qemu_plugin_tb_n_insns(const qemu_plugin_tb*);
qemu_plugin_insn* qemu_plugin_tb_get_insn(const qemu_plugin_tb*, std::size_t);
std::uint64_t qemu_plugin_insn_vaddr(const qemu_plugin_insn*);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t,
                                           void (*)(qemu_plugin_id_t, qemu_plugin_tb*));
void qemu_plugin_register_vcpu_mem_cb(qemu_plugin_insn*,
                                      void (*)(unsigned, qemu_plugin_meminfo_t, std::uint64_t,
                                               void*),
                                      int flags, int kinds, void*);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void*), void*);
__attribute__((visibility("default"))) int qemu_plugin_version = 1;
}

using namespace assay::numa;

namespace {

constexpr int no_registers = 0, read_write = 3;  // QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW
constexpr std::uint32_t site_limit = 1 << 18, processor_limit = 256;

std::uint8_t* page_nodes = nullptr;  // node + 1 of each page; 0: not accessed yet
std::uint64_t* site_addresses = nullptr;
std::uint32_t site_count = 0;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
// Accesses of one site on one virtual processor, by thread node * 8 + page node.
struct Cells {
    std::uint64_t reads[64], writes[64];
};
Cells* processors[processor_limit];
std::uint64_t lost = 0;

template <class T>
T* reserve(std::size_t count) {
    void* memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<T*>(memory);
}

unsigned find_node(std::uint64_t address) {
    const unsigned cpu_node = thread_node();
    if (is_emulated()) {
        page_nodes[address >> 12] = static_cast<std::uint8_t>(cpu_node + 1);
        return cpu_node;
    }
    void* page = reinterpret_cast<void*>(address & ~std::uint64_t{4095});
    int node = -1;
    if (syscall(SYS_move_pages, 0L, 1UL, &page, nullptr, &node, 0L) != 0 || node < 0 ||
        node >= static_cast<int>(max_real_nodes))
        return unknown_node;
    page_nodes[address >> 12] = static_cast<std::uint8_t>(node + 1);
    return static_cast<unsigned>(node);
}

void count_access(unsigned processor, qemu_plugin_meminfo_t info, std::uint64_t address,
                  void* user_data) {
    const auto site = reinterpret_cast<std::uintptr_t>(user_data);
    Cells** cells_of = processor < processor_limit ? &processors[processor] : nullptr;
    if (cells_of != nullptr && *cells_of == nullptr) *cells_of = reserve<Cells>(site_limit);
    if (cells_of == nullptr || *cells_of == nullptr || address >> 12 >= page_count) {
        __atomic_fetch_add(&lost, 1, __ATOMIC_RELAXED);
        return;
    }
    Cells* cells = *cells_of;
    const unsigned page_node = page_nodes[address >> 12];
    const unsigned node = page_node != 0 ? page_node - 1 : find_node(address);
    const unsigned cell = thread_node() * 8 + node;
    ++(qemu_plugin_mem_is_store(info) ? cells[site].writes : cells[site].reads)[cell];
}

// Returns the site number of an instruction's address; 0 if the table is full.
std::uint32_t find_or_add_site(std::uint64_t address) {
    static std::uint32_t* table = reserve<std::uint32_t>(std::size_t{4} * site_limit);
    const std::uint64_t hash = address * 0x9e3779b97f4a7c15ull >> 40;
    for (std::uint64_t k = 0; table != nullptr && k < 1024; ++k) {
        std::uint32_t& entry = table[(hash + k) % (std::size_t{4} * site_limit)];
        if (entry != 0 && site_addresses[entry] == address) return entry;
        if (entry != 0) continue;
        if (site_count + 1 == site_limit) return 0;
        site_addresses[++site_count] = address;
        return entry = site_count;
    }
    return 0;
}

void translate(qemu_plugin_id_t, qemu_plugin_tb* block) {
    pthread_mutex_lock(&mutex);
    for (std::size_t k = 0; k < qemu_plugin_tb_n_insns(block); ++k) {
        qemu_plugin_insn* instruction = qemu_plugin_tb_get_insn(block, k);
        const std::uint64_t site = find_or_add_site(qemu_plugin_insn_vaddr(instruction));
        qemu_plugin_register_vcpu_mem_cb(instruction, count_access, no_registers, read_write,
                                         reinterpret_cast<void*>(site));
    }
    pthread_mutex_unlock(&mutex);
}

// The virtual address of an object's first segment in its file, rounded down to a page.
std::uint64_t first_segment_address(const char* path) {
    Elf64_Ehdr header;
    Elf64_Phdr segments[32];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool is_read = fd >= 0 && read(fd, &header, sizeof header) == sizeof header &&
                         memcmp(header.e_ident, ELFMAG, SELFMAG) == 0;
    const ssize_t n =
        is_read ? pread(fd, segments, sizeof segments, static_cast<off_t>(header.e_phoff)) : 0;
    if (fd >= 0) close(fd);
    for (ssize_t k = 0; k < n / static_cast<ssize_t>(sizeof *segments) && k < header.e_phnum; ++k)
        if (segments[k].p_type == PT_LOAD) return segments[k].p_vaddr & ~std::uint64_t{4095};
    return 0;
}

// Writes the mapped files of this process: the guest's objects. QEMU's own files are among them,
// which has no effect.
void write_modules(Lines& lines) {
    FILE* maps = fopen("/proc/self/maps", "re");
    if (maps == nullptr) return;
    char line[PATH_MAX + 128], path[PATH_MAX + 1] = "";
    unsigned long long module_begin = 0, module_end = 0;
    const auto write_module = [&] {
        if (path[0] != 0)
            lines.write("module", std::uint64_t{module_begin} - first_segment_address(path),
                        std::uint64_t{module_begin}, std::uint64_t{module_end}, Text(path));
        path[0] = 0;
    };
    while (fgets(line, sizeof line, maps) != nullptr) {
        char* rest = nullptr;
        const unsigned long long begin = strtoull(line, &rest, 16),
                                 end = strtoull(rest + 1, &rest, 16);
        char* name = strchr(line, '/');
        if (name == nullptr) continue;
        name[strcspn(name, "\n")] = 0;
        if (strcmp(name, path) != 0) {
            write_module();
            module_begin = begin;
            strcpy(path, name);
        }
        module_end = end;
    }
    write_module();
    fclose(maps);
}

void write_counts(Lines& lines) {
    lines.write("object", 0, Text("other"), Text("all memory"), 0, 0, 0);
    for (std::uint32_t site = 1; site <= site_count; ++site)
        lines.write("stack", site, List<std::uint64_t>{&site_addresses[site], 1});
    const auto node_or_unknown = [](unsigned node) {
        return node == unknown_node ? -1 : static_cast<int>(node);
    };
    for (unsigned processor = 0; processor < processor_limit; ++processor) {
        if (processors[processor] == nullptr) continue;
        lines.write("thread", processor, 0, Text(""));
        std::uint64_t sums[64] = {};
        for (std::uint32_t site = 0; site <= site_count; ++site)
            for (unsigned cell = 0; cell < 64; ++cell) {
                const Cells& cells = processors[processor][site];
                if (cells.reads[cell] + cells.writes[cell] == 0) continue;
                sums[cell] += cells.reads[cell] + cells.writes[cell];
                lines.write("access", -1, site, processor, node_or_unknown(cell / 8),
                            node_or_unknown(cell % 8), cells.reads[cell], cells.writes[cell]);
            }
        for (unsigned cell = 0; cell < 64; ++cell)
            if (sums[cell] > 0)
                lines.write("part", 0, 0, processor, node_or_unknown(cell / 8),
                            node_or_unknown(cell % 8), sums[cell]);
    }
}

void report(qemu_plugin_id_t, void*) {
    const char* folder = getenv("ASSAY_NUMA_DIRECTORY");
    if (folder == nullptr) return;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%d.qemu.numa", folder, getpid());
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return;
    static Lines lines(fd);
    const char* command = getenv("ASSAY_NUMA_COMMAND");
    lines.write("process", recording_version, Text("qemu"), getpid(), getppid(), 4096,
                is_emulated() ? static_cast<int>(node_count()) : 0,
                Text(command != nullptr ? command : ""), Text(mpi_rank()));
    write_nodes(lines);
    write_modules(lines);
    write_counts(lines);
    lines.write("end", 0, lost, 0);
    lines.flush();
    close(fd);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id,
                                                                          const qemu_info_t*, int,
                                                                          char**) {
    read_nodes();
    page_nodes = reserve<std::uint8_t>(page_count);
    site_addresses = reserve<std::uint64_t>(site_limit);
    if (page_nodes == nullptr || site_addresses == nullptr) return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    qemu_plugin_register_atexit_cb(id, report, nullptr);
    return 0;
}
