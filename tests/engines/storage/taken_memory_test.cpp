// Tests of a writer whose memory others take, as other ranks and programs do on a full tmpfs: every
// write is taken all the same, and its data come into the file. The shortage is planted in
// madvise(), through which the store allocates its pages.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "storage/store/drain.hpp"
#include "storage/store/file_handles.hpp"
#include "store_fixture.hpp"

namespace {

constexpr long unlimited = 1L << 40;
std::atomic<long> pages_left{unlimited};  // that may still be allocated

long missing_pages(void* address, std::size_t bytes) {
    std::vector<unsigned char> present((bytes + 4095) / 4096);
    if (mincore(address, bytes, present.data())) return 0;
    return static_cast<long>(
        std::ranges::count_if(present, [](unsigned char page) { return !(page & 1); }));
}

}  // namespace

// Takes the place of the C library's madvise() in this program.
extern "C" int madvise(void* address, std::size_t bytes, int advice) noexcept {
    if (advice == MADV_POPULATE_WRITE && pages_left < unlimited) {
        const long missing = missing_pages(address, bytes);
        if (missing > pages_left) return errno = EFAULT, -1;
        pages_left -= missing;
    }
    return static_cast<int>(syscall(SYS_madvise, address, bytes, advice));
}

namespace {

constexpr std::size_t mib = 1 << 20;

// What the files have: every byte is known from its offset.
constexpr std::size_t period = 251'000;

const std::string& pattern() {
    static const std::string bytes = [] {
        std::string text(period + 64 * mib, 0);  // the largest block, from any place in the period
        for (std::size_t k = 0; k < text.size(); k += 1000)
            std::memset(text.data() + k, static_cast<int>(1 + k / 1000 % 251),
                        std::min<std::size_t>(1000, text.size() - k));
        return text;
    }();
    return bytes;
}

bool has_pattern(const std::string& path, std::size_t bytes) {
    std::ifstream in(path, std::ios::binary);
    std::string block(period, 0);
    for (std::size_t offset = 0; offset < bytes; offset += period) {
        const std::size_t size = std::min(period, bytes - offset);
        in.read(block.data(), static_cast<std::streamsize>(size));
        if (std::memcmp(block.data(), pattern().data(), size) != 0) return false;
    }
    return in && fs::file_size(path) == bytes;
}

// Blocks one behind the other in one file.
struct Job {
    Folder folder;
    std::string path = folder.file("out");
    std::unique_ptr<Store> store = create_store(folder.path, 1);
    std::uint32_t slot = slot_of_file(*store, path);
    FileHandles handles{*store};
    Drain drain{*store, handles, 1};
    Writer writer{*store, 0};
    std::size_t written = 0;

    Job() { pages_left = unlimited; }
    ~Job() {
        drain.stop();
        pages_left = unlimited;
        store->remove();
    }
    [[nodiscard]] bool write(std::size_t bytes) {
        const char* data = pattern().data() + written % period;
        if (!write_block(*store, writer, slot, written, data, bytes)) return false;
        written += bytes;
        return true;
    }
    void drain_all() {
        drain.finish(0, store->head(0).tail);
        drain.sync_all();
    }
    std::uint64_t allocated_bytes() const {
        struct stat status{};
        REQUIRE(stat(store->path().c_str(), &status) == 0);
        return static_cast<std::uint64_t>(status.st_blocks) * 512;
    }
    bool has_arrived() {
        drain_all();
        return has_pattern(path, written);
    }
};

}  // namespace

TEST_CASE("a rank without memory for the least ring says so") {
    Job job;
    pages_left = 200;
    CHECK(job.writer.claim() == ENOSPC);
}

TEST_CASE("a rank writes through the ring that it has had from the start") {
    Job job;
    REQUIRE(job.writer.claim() == 0);
    pages_left = 0;
    job.drain.start(1);
    for (int k = 0; k < 100; ++k)
        REQUIRE(job.write(std::min<std::size_t>(job.writer.max_bytes(), 100'003)));
    CHECK(job.writer.max_bytes() == mib / 4);
    CHECK(job.has_arrived());
}

TEST_CASE("the ring takes what is left, and gives back what it cannot use") {
    Job job;
    REQUIRE(job.writer.claim() == 0);
    const std::uint64_t before = job.allocated_bytes();
    pages_left = 3 * mib / 4096 + 5;
    job.drain.start(1);
    for (int k = 0; k < 100; ++k)
        REQUIRE(job.write(std::min<std::size_t>(job.writer.max_bytes(), 100'003)));
    CHECK(job.store->head(0).ring_bytes.load() == 4 * mib);
    CHECK(job.allocated_bytes() <= before + 3 * mib + 100 * sizeof(Record) + 4096);
    CHECK(job.has_arrived());
}

TEST_CASE("a writer goes on when others have taken the pages that it gave back") {
    Job job;
    REQUIRE(job.writer.claim() == 0);
    for (int k = 0; k < 100; ++k) REQUIRE(job.write(300'007));
    job.drain_all();
    await_prefault(*job.store);
    for (int k = 0; k < 2; ++k) job.writer.release_drained();
    const std::uint64_t released = job.allocated_bytes();
    pages_left = 100;
    job.drain.start(1);
    for (int k = 0; k < 100; ++k) REQUIRE(job.write(300'007));
    CHECK(job.allocated_bytes() <= released + 101 * 4096 + 200 * sizeof(Record));
    CHECK(job.has_arrived());
    pages_left = unlimited;
    for (int k = 0; k < 300; ++k) REQUIRE(job.write(300'007));
    CHECK(job.has_arrived());
}

TEST_CASE("with any writes, releases and shortages every write is taken" *
          doctest::test_suite("slow")) {
    for (unsigned seed = 0; seed < 20; ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        const auto below = [&](std::size_t limit) { return random() % limit; };
        Job job;
        REQUIRE(job.writer.claim() == 0);
        job.drain.start(1);
        for (int step = 0; step < 60; ++step) {
            switch (below(6)) {
                case 0: job.writer.release_drained(); break;
                case 1: job.drain_all(); break;
                case 2: pages_left = static_cast<long>(below(2) ? below(5000) : 0); break;
                case 3: pages_left = unlimited; break;
                default:
                    for (std::size_t k = below(20); k > 0; --k) {
                        const std::size_t most = job.writer.max_bytes();
                        const std::size_t bytes = 1 + below(below(2) ? most : 1000);
                        // The prefault thread may make the ring smaller meanwhile.
                        if (!job.write(bytes)) REQUIRE(bytes > job.writer.max_bytes());
                    }
            }
        }
        REQUIRE(job.has_arrived());
    }
}
