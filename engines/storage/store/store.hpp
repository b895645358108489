// A store: node-local memory that holds a job's parallel I/O until it is in the file system. One
// process of the node creates it, and all ranks of the node map it. This folder does not use MPI.
//
// No exceptions, because this code is loaded into users' programs. An error is reported in
// `Failure`, as one line for the user.
#pragma once

#include <cstdint>
#include <memory>
#include <ranges>
#include <string>

#include "storage/store/backing.hpp"
#include "storage/store/layout.hpp"

namespace assay::storage {

struct Failure {
    std::string message;
    explicit operator bool() const { return !message.empty(); }
};

// How the name of a store's file begins in a folder of stores.
constexpr const char* store_prefix = "assay-io-";

// Removes a store of any version, with its data, or a file that a job has begun to make a store.
// Sets `failure` if a job uses it, it is another user's, or it cannot be removed.
void erase_store(const std::string& path, Failure& failure);

class Store {
public:
    // `location` is a folder, a file or a /dev/dax device. The store is in the phase `formatting`
    // and locked against other jobs. `size` in bytes; 0: a default share of the free space. `keep`:
    // the name under which it is kept after the job; a store that an earlier job has kept under
    // that name is reused with its data. Returns null and sets `failure` on error, and removes a
    // file that this call has created. A file with other data is an error.
    static std::unique_ptr<Store> create(const std::string& location, std::uint64_t size,
                                         std::uint32_t ranks, const std::string& job,
                                         const std::string& name, Failure& failure,
                                         const std::string& keep = {});
    // Maps an existing store of this user. `shared_lock`: the store counts as in use as long as
    // this object lives. Returns null and sets `failure` on error.
    static std::unique_ptr<Store> attach(const std::string& path, bool shared_lock,
                                         Failure& failure);
    ~Store();
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;

    const std::string& path() const { return path_; }
    bool persistent() const { return persistent_; }
    bool in_memory() const { return backing_ == Backing::memory; }
    const StoreLayout& layout() const { return layout_; }
    std::uint32_t ranks() const { return layout_.ranks; }
    int descriptor() const { return fd_; }

    // The parts of the store (layout.hpp). `position` counts a rank's records, and `offset` the
    // bytes of its data ring. Both only grow: the functions map them into the rings.
    Superblock& superblock() const { return *object<Superblock>(0); }
    FileSlot& file(std::uint32_t slot) const {
        return *object<FileSlot>(StoreLayout::files_offset() + slot * sizeof(FileSlot));
    }
    // The numbers of the slots that have been assigned to files. They are assigned in order.
    auto assigned_slots() const {
        const auto is_assigned = [this](std::uint32_t slot) { return file(slot).generation != 0; };
        return std::views::iota(0u, static_cast<std::uint32_t>(file_slots)) |
               std::views::take_while(is_assigned);
    }
    RankHead& head(std::uint32_t rank) const {
        return *object<RankHead>(layout_.head_offset(rank));
    }
    Record& record(std::uint32_t rank, std::uint64_t position) const {
        return *object<Record>(layout_.records_offset(rank) +
                               position % layout_.record_slots * sizeof(Record));
    }
    char* data(std::uint32_t rank, std::uint64_t offset) const {
        return map_ + layout_.data_offset(rank) +
               offset % head(rank).ring_bytes.load(std::memory_order_relaxed);
    }

    // The job's clock, in nanoseconds.
    std::uint64_t now() const;
    // Moves the clock forward to `sequence`, unless it is there already.
    void advance_clock(std::uint64_t sequence) const;
    // The same for all data of the store, whose newest record has the sequence `latest_record`.
    void advance_clock_past_data(std::uint64_t latest_record) const;

    // Wakes the drain.
    void request_drain() const;
    // Asks the drain to call fsync, so that drained data may leave the rings.
    void request_sync() const;

    // Reserves the space of [from, from + bytes) without touching its pages, so that no later
    // access to them can fail. Returns 0 or errno.
    int allocate(std::size_t from, std::size_t bytes) const;
    // Allocates the pages of [from, from + bytes). Returns 0 or errno.
    int populate(std::size_t from, std::size_t bytes) const;
    // Gives the whole pages of [from, from + bytes) back to the system; they read as zeros then.
    // Does nothing unless the store is in memory.
    void release(std::size_t from, std::size_t bytes) const;
    // Maps allocated pages into this process before they are read.
    void map_pages(std::size_t from, std::size_t bytes) const;

    // The number + 1 of the descriptor that the rank's process holds for the file; 0: none.
    std::atomic<std::int32_t>& descriptor_of(std::uint32_t rank, std::uint32_t slot) const {
        return (*object<DescriptorTable>(layout_.descriptors_offset(rank)))[slot];
    }

    // The number + 1 of the descriptor that the background drain holds for the file; 0: none.
    std::atomic<std::int32_t>& background_descriptor_of(std::uint32_t slot) const {
        return (*object<DescriptorTable>(StoreLayout::background_offset()))[slot];
    }

    // Whether the machine was restarted since the store was made.
    bool is_from_earlier_boot() const;
    // Whether the process with this number has ended. False if that cannot be known: the number is
    // 0, or of another PID namespace or an earlier boot.
    bool has_ended(std::uint32_t pid) const;
    // Stores the present time as the job's last sign of life.
    void note_alive() const;
    // Stores the phase; on persistent memory it is written back.
    void set_phase(Phase phase) const;
    // On persistent memory: writes the bytes back and waits until that is done.
    void persist(const void* from, std::size_t bytes) const;

    // Whether the store was kept by an earlier job and has its data.
    bool taken_over() const { return taken_over_; }
    // Whether the machine was restarted between the earlier job and this one.
    bool restarted() const { return restarted_; }
    // Whether the store was made in place of a kept one that a restart of the machine had damaged.
    bool replaced_damaged() const { return replaced_damaged_; }
    // Call it when the file system has all data: the store is kept if it has a name for that, else
    // removed.
    void finish();
    // Unlinks the store (a file) or marks it as empty (a device). Its creator calls it. If another
    // file is at the store's path by now, that one stays.
    void remove();

private:
    class Creation;  // create.cpp

    Store() = default;
    bool map(std::size_t bytes, Failure& failure);
    void unmap();
    int touch_pages(std::size_t begin, std::size_t end) const;
    void format(const std::string& job, const std::string& keep, bool is_zero);
    bool take_over(const std::string& job, Failure& failure);
    bool is_intact() const;
    void begin_job(const std::string& job);
    template <class T>
    T* object(std::size_t offset) const {
        return reinterpret_cast<T*>(map_ + offset);
    }

    std::string path_;
    Backing backing_ = Backing::memory;
    bool persistent_ = false;
    bool taken_over_ = false, restarted_ = false, replaced_damaged_ = false;
    bool same_pids_ =
        false;  // this process is in the PID namespace and boot of the store's creator
    StoreLayout layout_{};
    int fd_ = -1;
    char* map_ = nullptr;
    std::size_t mapped_bytes_ = 0;
};

// Whether the record's numbers are possible: its file, its sequence, and its data in the ring.
bool lies_in_file_table_and_ring(const Store& store, std::uint32_t rank, const Record& record);
// XXH3 of the record without its `checksum`; with a persistent store also of its data.
std::uint64_t checksum_of(const Store& store, std::uint32_t rank, const Record& record);

}  // namespace assay::storage
