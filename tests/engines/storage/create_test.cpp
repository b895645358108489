// Creating and removing stores beside files of others: only the store's own file is ever removed or
// overwritten.
#include <doctest/doctest.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "power_model.hpp"
#include "storage/store/superblock.hpp"
#include "store_fixture.hpp"

namespace {

// A reason for which no store can be created.
struct Fault {
    std::string message;
    std::uint64_t store_bytes = small_store;
    long file_system = 0;
    std::size_t free_bytes = 0;  // 0: unlimited
};
const std::vector<Fault> faults{{"too small for 1 ranks", 1u << 20},
                                {"it is on NFS", small_store, NFS_SUPER_MAGIC},
                                {"it is on SMB", small_store, SMB_SUPER_MAGIC},
                                {"has no space left", small_store, EXT4_SUPER_MAGIC, 1u << 20}};

// Tries to create the store `x` at the location. Returns the error message.
std::string create_with(const Fault& fault, const fs::path& location) {
    model_file_system(fault.file_system);
    fill_device(fault.free_bytes);
    Failure failure;
    const auto store = Store::create(location, fault.store_bytes, 1, "job", "x", failure);
    model_file_system(0);
    fill_device(0);
    return failure.message;
}

std::string create(const fs::path& location) { return create_with({""}, location); }

void write_file(const fs::path& path, const std::string& contents) {
    std::ofstream(path, std::ios::binary) << contents;
}

std::string read_file(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

bool is_store(const fs::path& path) { return version_of(path) == store_version; }

}  // namespace

TEST_CASE("an empty file of a user is there and empty after a creation that fails") {
    for (const Fault& fault : faults) {
        CAPTURE(fault.message);
        const Folder folder;
        const fs::path in_folder = folder.file("assay-io-x"), named = folder.file("pool");
        CHECK(create_with(fault, folder.path).find(fault.message) != std::string::npos);
        CHECK(create_with(fault, named).find(fault.message) != std::string::npos);
        for (const auto& path : {in_folder, named}) {
            REQUIRE(fs::exists(path));
            CHECK(fs::file_size(path) == 0);
        }
    }
}

TEST_CASE("a creation that fails leaves no file of its own") {
    for (const Fault& fault : faults) {
        CAPTURE(fault.message);
        const Folder folder;
        CHECK(create_with(fault, folder.path).find(fault.message) != std::string::npos);
        CHECK(create_with(fault, folder.path / "pool").find(fault.message) != std::string::npos);
        CHECK(fs::is_empty(folder.path));
    }
}

TEST_CASE("a file with other data is not overwritten") {
    std::string late(20u << 20, 0);
    late.back() = 'x';
    for (const auto& contents : {std::string("results"), late}) {
        const Folder folder;
        for (const char* name : {"assay-io-x", "pool"}) {
            const fs::path path = folder.path / name;
            write_file(path, contents);
            const bool is_named = path.filename() == "pool";
            CHECK(create(is_named ? path : folder.path).find("a file with other data") !=
                  std::string::npos);
            CHECK(read_file(path) == contents);
            Failure failure;
            erase_store(path, failure);
            CHECK(failure.message.find("is not a store") != std::string::npos);
            CHECK(read_file(path) == contents);
        }
    }
}

TEST_CASE("a file of zeros becomes a store") {
    const Folder folder;
    const fs::path path = folder.path / "pool";
    write_file(path, std::string(1u << 20, 0));
    CHECK(create(path) == "");
    CHECK(is_store(path));
}

TEST_CASE("neither pipes nor other devices are opened") {
    const Folder folder;
    const fs::path pipe = folder.path / "assay-io-x";
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(create(folder.path).find("cannot be opened as a store") != std::string::npos);
    CHECK(fs::is_fifo(pipe));
    CHECK(create("/dev/null").find("neither a folder, a file nor") != std::string::npos);
}

TEST_CASE("a store that its job removes while another one waits for it is made anew") {
    const Folder folder;
    const fs::path path = folder.path / "pool";
    create_store(path, 1)->set_phase(Phase::clean);
    before_lock = [&] { fs::remove(path); };
    CHECK(create(path) == "");
    CHECK(is_store(path));
}

TEST_CASE("a file that takes the place of a removed store stays") {
    const Folder folder;
    const fs::path path = folder.path / "pool";
    const auto replace = [&] {
        fs::remove(path);
        write_file(path, "results");
    };
    SUBCASE("while another job waits for the store") {
        create_store(path, 1)->set_phase(Phase::clean);
        before_lock = replace;
        CHECK(create(path).find("a file with other data") != std::string::npos);
    }
    SUBCASE("before the store's job ends") {
        const auto store = create_store(path, 1);
        replace();
        store->remove();
    }
    SUBCASE("before the store is erased") {
        create_store(path, 1)->set_phase(Phase::clean);
        before_lock = replace;
        Failure failure;
        erase_store(path, failure);
        CHECK(failure.message.find("cannot be removed") != std::string::npos);
    }
    CHECK(read_file(path) == "results");
}

TEST_CASE("a store that is named by a link is removed, and the link stays") {
    const Folder folder;
    const fs::path link = folder.path / "link", path = folder.path / "pool";
    fs::create_symlink(path, link);
    const auto store = create_store(link, 1);
    CHECK(is_store(path));
    store->remove();
    CHECK(!fs::exists(path));
    CHECK(fs::is_symlink(link));
}
