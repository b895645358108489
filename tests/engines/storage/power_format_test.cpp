// Power-loss tests of a store that is made anew in the place of an old one, and of one whose ring
// is made smaller because its device is full. The model is that of power_loss_test.cpp.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "power_model.hpp"
#include "power_store.hpp"
#include "storage/store/drain.hpp"
#include "storage/store/file_handles.hpp"
#include "storage/store/file_table.hpp"
#include "storage/store/recover.hpp"
#include "storage/store/writer.hpp"
#include "write_block.hpp"

using namespace assay::storage;

namespace {

constexpr std::size_t format_bytes = 32u << 20;

bool write_words(Store& store, Writer& writer, std::uint32_t slot, std::uint64_t offset,
                 std::uint64_t value, std::size_t words = 1) {
    const std::vector<std::uint64_t> data(words, value);
    return write_block(store, writer, slot, offset, data.data(), words * word);
}

std::uint32_t slot_of_file(const Store& store, const FileSystem& files, std::size_t file) {
    FileStatus status;
    REQUIRE(read_status(files.descriptor(file), status) == 0);
    return acquire_slot(store, status, files.path(file));
}

// Makes a store of an ended job that wrote `value` into the file, and marks it as clean.
void use_store(const std::string& path, const FileSystem& files, std::size_t file,
               std::uint32_t store_ranks, std::uint64_t value) {
    Failure failure;
    auto store = Store::create(path, format_bytes, store_ranks, "old", "s", failure);
    REQUIRE_MESSAGE(store, failure.message);
    store->set_phase(Phase::active);
    const auto slot = slot_of_file(*store, files, file);
    for (std::uint32_t rank = 0; rank < store_ranks; ++rank) {
        Writer writer(*store, rank);
        for (std::uint64_t k = 0; k < 5; ++k)
            REQUIRE(write_words(*store, writer, slot, (rank * 8 + k) * word, value));
    }
    store->set_phase(Phase::clean);  // as if the user had discarded the data
}

}  // namespace

TEST_CASE("a power failure during the format of an old store brings back none of its data") {
    constexpr std::uint64_t old_value = 7, new_value = 9;
    std::size_t power_failures = 0;
    std::string problem;
    for (std::uint32_t old_ranks = 1; old_ranks <= 3; ++old_ranks) {
        Folder folder;
        Random failure_random(old_ranks);
        FileSystem files(folder.path / "files", failure_random);
        const std::size_t file = files.create("f", std::string(64 * word, 0));
        const std::string path = folder.path / "store";
        use_store(path, files, file, old_ranks, old_value);
        CrashedStore crashed(folder.path / "crashed", format_bytes);
        std::size_t calls = 0;
        std::unique_ptr<Medium> medium;
        bool acknowledged = false, active = false;
        const auto lose_power = [&] {
            // Of the write-backs of the 4096 slots only each 32nd is tested.
            if (!problem.empty() || (++calls % 32 && !active)) return;
            ++power_failures;
            persist_observer = nullptr;
            medium->lose_power(crashed.map());
            files.lose_power();
            std::uint64_t contents_words[64]{};
            if (auto store = crashed.attach()) {
                files.redirect(*store, 4);
                const Recovery recovery = recover(*store, {1});
                const std::string contents = files.contents_after(file);
                std::memcpy(contents_words, contents.data(),
                            std::min(contents.size(), sizeof contents_words));
                if (recovery.torn || !recovery.kept.empty()) problem = "data are torn or kept";
            } else if (active) {
                problem = "the store is damaged";
            }
            for (const auto value : contents_words)
                if (value && value != new_value) problem = "data of the old store came back";
            if (acknowledged && contents_words[1] != new_value)
                problem = "an acknowledged write is lost";
            persist_observer = medium.get();
        };
        on_next_map([&](char* live, std::size_t bytes) {
            std::memcpy(crashed.map(), live, bytes);
            medium = std::make_unique<Medium>(live, bytes, failure_random);
            medium->add(0, StoreLayout::files_offset() + 8 * sizeof(FileSlot));
            const auto layout = StoreLayout::fit(bytes, ranks);
            for (std::uint32_t rank = 0; rank < ranks; ++rank) {
                medium->add(layout.head_offset(rank), page);
                medium->add(layout.records_offset(rank), page);
                medium->add(layout.data_offset(rank), page);
            }
            medium->at_crash_point = lose_power;
        });
        Failure failure;
        auto store = Store::create(path, format_bytes, ranks, "new", "s", failure);
        REQUIRE_MESSAGE(store, failure.message);
        active = true;
        store->set_phase(Phase::active);
        const auto slot = slot_of_file(*store, files, file);
        Writer writer(*store, 0);
        REQUIRE(write_words(*store, writer, slot, word, new_value));
        acknowledged = true;
        lose_power();
        CHECK_MESSAGE(problem.empty(), problem << "; old ranks: " << old_ranks);
        medium.reset();
    }
    CHECK(power_failures > 300);
}

TEST_CASE("a power failure finds the data of a ring that a full device has made smaller") {
    constexpr std::size_t bytes = 40u << 20, blocks = 4, block = (512u << 10) / word;
    constexpr std::uint64_t writes = 40;  // 20 MiB through a ring of 8 MiB
    Folder folder;
    Random failure_random(1);
    FileSystem files(folder.path / "files", failure_random);
    const std::size_t file = files.create("f", std::string(blocks * block * word, 0));
    Failure failure;
    auto store = Store::create(folder.path / "store", bytes, 1, "job", "s", failure);
    REQUIRE_MESSAGE(store, failure.message);
    store->set_phase(Phase::active);
    CrashedStore crashed(folder.path / "crashed", bytes);
    const auto slot = slot_of_file(*store, files, file);
    const FileHandles handles(*store);
    Drain drain(*store, handles, 1);
    Writer writer(*store, 0);
    Medium medium(reinterpret_cast<char*>(&store->superblock()), bytes, failure_random);
    const auto& layout = store->layout();
    medium.add(0, StoreLayout::files_offset() + sizeof(FileSlot));
    medium.add(layout.head_offset(0), page);
    medium.add(layout.records_offset(0), page);
    medium.add(layout.data_offset(0), layout.ring_bytes);
    std::uint64_t acknowledged[blocks]{}, unfinished = 0;
    std::size_t calls = 0, power_failures = 0;
    std::string problem;
    const auto lose_power = [&] {
        if (!problem.empty() || ++calls % 3) return;
        ++power_failures;
        persist_observer = nullptr;
        medium.lose_power(crashed.map());
        files.lose_power();
        auto recovered = crashed.attach();
        files.redirect(*recovered, 1);
        const Recovery recovery = recover(*recovered, {1});
        if (recovery.torn || !recovery.kept.empty()) problem = "data are torn or kept";
        const std::string contents = files.contents_after(file);
        std::vector<std::uint64_t> words(contents.size() / word);
        // Not memcpy, which takes no null pointer, the address of an empty vector.
        contents.copy(reinterpret_cast<char*>(words.data()), words.size() * word);
        for (std::size_t k = 0; k < blocks * block && problem.empty(); ++k) {
            const bool is_new = unfinished && unfinished % blocks == k / block &&
                                words[k] == unfinished && words[k / block * block] == unfinished;
            if (words[k] != acknowledged[k / block] && !is_new)
                problem = "word " + std::to_string(k) + " is of " + std::to_string(words[k]);
        }
        persist_observer = &medium;
    };
    medium.at_crash_point = lose_power;
    fill_device(layout.data_offset(0) + (10u << 20));
    writer.prefault(60);
    fill_device(0);
    REQUIRE(store->head(0).ring_bytes == 10u << 20);
    for (std::uint64_t k = 1; k <= writes && problem.empty(); ++k) {
        unfinished = k;
        // The writer need not wait for a drain.
        if (k % 8 == 0) drain.finish(0, store->head(0).tail), drain.sync_all();
        REQUIRE(write_words(*store, writer, slot, k % blocks * block * word, k, block));
        acknowledged[k % blocks] = k;
        unfinished = 0;
    }
    CHECK_MESSAGE(problem.empty(), problem << "; at power failure " << power_failures);
    CHECK(power_failures > 50);
}
