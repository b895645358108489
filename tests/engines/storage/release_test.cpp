// Tests that a writer gives the memory of drained data back when memory is short, and of no other
// data. The memory is measured as the allocated blocks of the store's file.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "storage/store/drain.hpp"
#include "storage/store/file_handles.hpp"
#include "store_fixture.hpp"

namespace {

constexpr std::size_t block = 100'003;

std::uint64_t allocated_bytes(const Store& store) {
    struct stat status{};
    REQUIRE(stat(store.path().c_str(), &status) == 0);
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

char content(std::size_t k) { return static_cast<char>(1 + k % 251); }

void write_blocks(Store& store, Writer& writer, std::uint32_t slot, std::size_t from,
                  std::size_t to) {
    for (std::size_t k = from; k < to; ++k)
        REQUIRE(write_block(store, writer, slot, k * block,
                            std::vector<char>(block, content(k)).data(), block));
}

bool has_blocks(const std::string& path, std::size_t count) {
    std::ifstream in(path, std::ios::binary);
    std::vector<char> data(block);
    for (std::size_t k = 0; k < count; ++k)
        if (!in.read(data.data(), block) || data != std::vector<char>(block, content(k)))
            return false;
    return true;
}

struct Job {
    Folder folder;
    std::string path = folder.file("out");
    std::unique_ptr<Store> store = create_store(folder.path, 1);
    std::uint32_t slot = slot_of_file(*store, path);
    FileHandles handles{*store};
    Drain drain{*store, handles, 1};
    ~Job() { store->remove(); }
    void drain_all() {
        drain.finish(0, store->head(0).tail);
        drain.sync_all();
    }
};

}  // namespace

TEST_CASE("drained data give their memory back, and the ring is used again") {
    Job job;
    Writer writer(*job.store, 0);
    const std::uint64_t empty = allocated_bytes(*job.store);
    write_blocks(*job.store, writer, job.slot, 0, 200);
    job.drain_all();
    CHECK(allocated_bytes(*job.store) > empty + 200 * block);
    await_prefault(*job.store);
    const auto& head = job.store->head(0);
    const std::uint64_t before = allocated_bytes(*job.store);
    writer.release_drained();
    // A reader may be copying what has just been evicted.
    const Record first = job.store->record(0, 0);
    CHECK(head.first_byte.load() > first.ring_offset);
    CHECK(job.store->data(0, first.ring_offset)[0] == content(0));
    CHECK(allocated_bytes(*job.store) > before - head.ring_bytes.load() + 200 * block);
    writer.release_drained();
    // The records, the file's slot and the window stay.
    CHECK(allocated_bytes(*job.store) <
          empty + writer.max_bytes() + 200 * sizeof(Record) + 4 * page);
    // More data than the ring holds, with releases between the writes.
    for (std::size_t k = 200; k < 1200; k += 50) {
        write_blocks(*job.store, writer, job.slot, k, k + 50);
        job.drain_all();
        if (k % 200 == 0) writer.release_drained();
    }
    CHECK(has_blocks(job.path, 1200));
}

TEST_CASE("data that are not drained stay") {
    Job job;
    Writer writer(*job.store, 0);
    write_blocks(*job.store, writer, job.slot, 0, 100);
    job.drain_all();
    write_blocks(*job.store, writer, job.slot, 100, 200);
    writer.release_drained();
    CHECK(job.store->head(0).first_record == 100);
    for (std::size_t k = 100; k < 200; ++k) {
        const char* data = job.store->data(0, job.store->record(0, k).ring_offset);
        CHECK(data[0] == content(k));
        CHECK(data[block - 1] == content(k));
    }
    CHECK(allocated_bytes(*job.store) > 100 * block);
    job.drain_all();
    CHECK(has_blocks(job.path, 200));
}

TEST_CASE("what a hold keeps stays in the ring, and leaves after it") {
    Job job;
    Writer writer(*job.store, 0);
    write_blocks(*job.store, writer, job.slot, 0, 100);
    job.drain_all();
    {
        const Writer::Hold hold(writer);
        for (int k = 0; k < 2; ++k) writer.release_drained();  // the second gives pages back
        CHECK(job.store->head(0).first_record == 0);
        CHECK(job.store->data(0, job.store->record(0, 0).ring_offset)[0] == content(0));
        // A record without data is published meanwhile, as the conflict resolver does.
        Record tombstone{};
        tombstone.file = job.slot, tombstone.generation = job.store->file(job.slot).generation;
        tombstone.kind = static_cast<std::uint64_t>(RecordKind::tombstone);
        writer.publish(&tombstone, 1);
        writer.release_drained();
        CHECK(job.store->head(0).first_record == 0);
    }
    writer.release_drained();
    CHECK(job.store->head(0).first_record == 100);
    write_blocks(*job.store, writer, job.slot, 100, 200);
    job.drain_all();
    CHECK(has_blocks(job.path, 200));
}

TEST_CASE("a reader never takes the zeros of released memory for data" *
          doctest::test_suite("slow")) {
    Job job;
    Writer writer(*job.store, 0);
    std::atomic<bool> stop{false};
    std::atomic<std::size_t> read_wrong{0}, read_intact{0};
    std::thread reader([&] {
        const auto& head = job.store->head(0);
        while (!stop) {
            const std::uint64_t tail = head.tail.load(std::memory_order_acquire);
            if (tail == head.first_record.load()) continue;
            const Record record = job.store->record(0, tail - 1);
            const char* data = job.store->data(0, record.ring_offset);
            const std::string copy(data, block);
            std::atomic_thread_fence(std::memory_order_acquire);
            // The data are valid if the record was not evicted during the copy, as in
            // Job::in_ring().
            if (record.ring_offset < head.first_byte.load(std::memory_order_acquire)) continue;
            if (head.first_record.load() > tail - 1) continue;
            ++read_intact;
            read_wrong += copy != std::string(block, content(record.begin / block));
        }
    });
    for (std::size_t k = 0; k < 600; ++k) {
        write_blocks(*job.store, writer, job.slot, k, k + 1);
        job.drain_all();
        const std::size_t before = read_intact;
        for (int wait = 0; k % 20 == 0 && read_intact == before && wait < 1000; ++wait)
            usleep(1000);
        writer.release_drained();
    }
    stop = true;
    reader.join();
    CHECK(read_wrong == 0);
    CHECK(read_intact > 0);
    CHECK(has_blocks(job.path, 600));
}

TEST_CASE("the thread releases when memory is short, and only then") {
    Job job;
    const auto root = job.folder.path / "root";
    fs::create_directories(root / "proc");
    const auto plant = [&](std::uint64_t available_kb) {
        const auto next = root / "proc/next";
        std::ofstream(next) << "MemTotal: 999999999 kB\nMemAvailable: " << available_kb << " kB\n";
        fs::rename(next, root / "proc/meminfo");
    };
    plant(100 << 20);
    setenv("ASSAY_ROOT", root.c_str(), 1);
    const std::uint64_t empty = allocated_bytes(*job.store);
    Writer writer(*job.store, 0);
    unsetenv("ASSAY_ROOT");
    write_blocks(*job.store, writer, job.slot, 0, 200);
    job.drain_all();
    const timespec pause{0, 700'000'000};  // several checks of the memory
    nanosleep(&pause, nullptr);
    CHECK(job.store->head(0).first_record == 0);
    CHECK(allocated_bytes(*job.store) > empty + 200 * block);
    plant(1000);
    for (int k = 0; k < 3000 && allocated_bytes(*job.store) > empty + 100 * block; ++k) {
        const timespec wait{0, 20'000'000};
        nanosleep(&wait, nullptr);
    }
    CHECK(allocated_bytes(*job.store) < empty + 100 * block);
    write_blocks(*job.store, writer, job.slot, 200, 300);
    job.drain_all();
    CHECK(has_blocks(job.path, 300));
}
