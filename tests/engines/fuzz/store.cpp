// Fuzz target: stores that another process has left, with valid checksums; and requests that
// members of a job send to the service of a node.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "fuzz.hpp"
#include "storage/accelerator/service.hpp"
#include "storage/store/file_table.hpp"
#include "storage/store/recover.hpp"
#include "storage/store/store.hpp"
#include "storage/store/superblock.hpp"
#include "storage/store/writer.hpp"

using namespace assay::storage;
namespace session = assay::session;

using fuzz::append;

namespace {

constexpr std::uint64_t store_bytes = 64u << 20;
constexpr std::size_t block = 5000, blocks = 3, max_ranks = 2;

// A store with three blocks of a file, as a killed job leaves it. Another node has written some of
// their bytes later.
struct PlantedStore {
    explicit PlantedStore(const char* name) : path(fuzz::unused_path() + name) {
        Failure failure;
        store = Store::create(path, store_bytes, max_ranks, "job", name, failure);
        if (!store) std::abort();
        store->set_phase(Phase::active);
        const std::string file = path + ".out";
        close(open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
        FileStatus status;
        if (read_status(file.c_str(), status) != 0) std::abort();
        const std::uint32_t slot = acquire_slot(*store, status, file);
        Writer writer(*store, 0);
        for (std::size_t k = 0; k < blocks; ++k) {
            std::uint64_t ring_offset = 0;
            char* to = writer.reserve(block, 1, ring_offset);
            if (!to) std::abort();
            writer.begin_write();
            std::memset(to, 'a', block);
            Record record{};
            record.file = slot, record.generation = store->file(slot).generation;
            record.kind = static_cast<std::uint64_t>(RecordKind::data);
            record.begin = k * block, record.length = record.stride = block, record.count = 1;
            writer.publish(&record, 1, ring_offset, block);
        }
        store->file(slot).superseded = 1;
        Record superseded{};
        superseded.file = slot, superseded.generation = store->file(slot).generation;
        superseded.kind = static_cast<std::uint64_t>(RecordKind::superseded);
        superseded.begin = 100, superseded.length = 50, superseded.stride = block;
        superseded.count = blocks;
        writer.publish(&superseded, 1);
    }
    std::string path;
    std::unique_ptr<Store> store;
};

// The parts of a store that describe its contents. An input has these parts, one after the other.
struct Part {
    std::size_t offset, bytes;
};
std::vector<Part> parts_of(const StoreLayout& layout) {
    std::vector<Part> parts{{0, 640}, {StoreLayout::files_offset(), 512}};
    for (std::uint32_t rank = 0; rank < max_ranks; ++rank) {
        parts.push_back({layout.head_offset(rank), 512});
        parts.push_back({layout.records_offset(rank), 8 * sizeof(Record)});
    }
    return parts;
}

// The file of a planted store, and the input that reproduces it.
struct StoreFile {
    StoreFile() : planted("store") {
        layout = planted.store->layout();
        planted.store.reset();
        fd = open(planted.path.c_str(), O_RDWR | O_CLOEXEC);
        if (fd < 0) std::abort();
        for (const Part& part : parts_of(layout)) {
            const std::size_t begin = input.size();
            input.resize(begin + part.bytes);
            if (pread(fd, input.data() + begin, part.bytes, static_cast<off_t>(part.offset)) < 0)
                std::abort();
        }
    }
    PlantedStore planted;
    StoreLayout layout{};
    int fd = -1;
    Input input;
};

const StoreFile& store_file() {
    static const StoreFile instance;
    return instance;
}

std::vector<Input> seed_store() {
    Input detached = store_file().input;
    auto phase = Phase::detached;
    std::memcpy(detached.data() + offsetof(Superblock, phase), &phase, sizeof phase);
    return {store_file().input, detached};
}

void read_store(const std::uint8_t* data, std::size_t size) {
    fuzz::InputReader input(data, size);
    for (const Part& part : parts_of(store_file().layout)) {
        std::string bytes = input.read_bytes(part.bytes);
        bytes.resize(part.bytes);
        if (pwrite(store_file().fd, bytes.data(), bytes.size(), static_cast<off_t>(part.offset)) <
            0)
            std::abort();
    }
    Failure failure;
    const auto store = Store::attach(store_file().planted.path, false, failure);
    version_of(store_file().planted.path);
    if (!store) return;
    for (std::uint32_t rank = 0; rank < std::min<std::size_t>(store->ranks(), max_ranks); ++rank)
        for (std::uint64_t k = 0; k < 8 && k < store->layout().record_slots; ++k) {
            Record& record = store->record(rank, k);
            const auto kind = static_cast<RecordKind>(record.kind);
            // On persistent memory the checksum includes the data, which may lie outside of the
            // store.
            if (!store->persistent() || kind != RecordKind::data)
                record.checksum = checksum_of(*store, rank, record);
        }
    undrained_data(*store);
    RecoveryOptions options;
    options.threads = 1;
    options.force = size % 2 == 0;
    options.discard = size % 3 == 0;
    recover(*store, options);
}

// --- The service

std::vector<Input> seed_requests() {
    Input input;
    append(input, Request{Request::read, 0, 0, block});
    append(input, Request{Request::read_available, 0, block, 1 << 20});
    append(input, Request{Request::updates, max_ranks, 7, 0});
    for (std::uint64_t position : {0, 1}) append(input, position);
    append(input, Request{Request::add_pointer, 3, 0, 5});
    append(input, Request{Request::set_pointer, 4, 0, 5});
    return {input};
}

void read_requests(const std::uint8_t* data, std::size_t size) {
    static const PlantedStore planted("service");
    session::Token token;
    token.bytes.fill(1);
    std::string error;
    static const std::unique_ptr<Service> service =
        Service::start(*planted.store, token, htonl(INADDR_LOOPBACK), error);
    if (!service) std::abort();
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(service->port());
    if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 ||
        !session::introduce(fd, token, service_purpose))
        std::abort();
    const linger close_at_once{1, 0};  // closes at once, so that no port stays in TIME_WAIT
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &close_at_once, sizeof close_at_once);
    if (size > 0 && ::send(fd, data, size, MSG_NOSIGNAL) < 0) std::abort();
    shutdown(fd, SHUT_WR);
    std::array<char, 65536> answer;
    while (recv(fd, answer.data(), answer.size(), 0) > 0) {
    }
    close(fd);
}

}  // namespace

std::vector<Reader> readers() {
    return {{"store", seed_store, read_store}, {"service", seed_requests, read_requests}};
}
