// Stores that another process has left, behind valid checksums; and what members of a job send to
// the service that reads its store.
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
#include "storage/store/writer.hpp"

using namespace assay::storage;
namespace session = assay::session;

using fuzz::append;

namespace {

constexpr std::uint64_t store_bytes = 64u << 20;
constexpr std::size_t block = 5000, blocks = 3, most_ranks = 2;

// A store with three blocks of a file, as its job was killed.
struct Planted {
    explicit Planted(const char* name) : path(fuzz::free_path() + name) {
        Failure failure;
        store = Store::create(path, store_bytes, most_ranks, "job", name, failure);
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
    }
    std::string path;
    std::unique_ptr<Store> store;
};

// The parts of a store that say where everything is, one after the other in an input.
struct Part {
    std::size_t offset, bytes;
};
std::vector<Part> parts_of(const StoreLayout& layout) {
    std::vector<Part> parts{{0, 640}, {StoreLayout::files_offset(), 512}};
    for (std::uint32_t rank = 0; rank < most_ranks; ++rank) {
        parts.push_back({layout.head_offset(rank), 512});
        parts.push_back({layout.records_offset(rank), 8 * sizeof(Record)});
    }
    return parts;
}

struct Left {
    Left() : planted("store") {
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
    Planted planted;
    StoreLayout layout{};
    int fd = -1;
    Input input;
};

const Left& left() {
    static const Left made;
    return made;
}

std::vector<Input> planted_store() {
    Input detached = left().input;
    auto phase = Phase::detached;
    std::memcpy(detached.data() + offsetof(Superblock, phase), &phase, sizeof phase);
    return {left().input, detached};
}

void read_store(const std::uint8_t* data, std::size_t size) {
    fuzz::Parts input(data, size);
    for (const Part& part : parts_of(left().layout)) {
        std::string bytes = input.take_bytes(part.bytes);
        bytes.resize(part.bytes);
        if (pwrite(left().fd, bytes.data(), bytes.size(), static_cast<off_t>(part.offset)) < 0)
            std::abort();
    }
    Failure failure;
    const auto store = Store::attach(left().planted.path, false, failure);
    version_of(left().planted.path);
    if (!store) return;
    for (std::uint32_t rank = 0; rank < std::min<std::size_t>(store->ranks(), most_ranks); ++rank)
        for (std::uint64_t k = 0; k < 8 && k < store->layout().record_slots; ++k) {
            Record& record = store->record(rank, k);
            const auto kind = static_cast<RecordKind>(record.kind);
            // On persistent memory the sum is over data that may lie anywhere.
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

std::vector<Input> planted_requests() {
    Input input;
    append(input, Request{Request::read, 0, 0, block});
    append(input, Request{Request::read_available, 0, block, 1 << 20});
    append(input, Request{Request::updates, most_ranks, 7, 0});
    for (std::uint64_t position : {0, 1}) append(input, position);
    append(input, Request{Request::add_pointer, 3, 0, 5});
    append(input, Request{Request::set_pointer, 4, 0, 5});
    return {input};
}

void read_requests(const std::uint8_t* data, std::size_t size) {
    static const Planted planted("service");
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
    const linger at_once{1, 0};  // no port stays behind
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    if (size > 0 && ::send(fd, data, size, MSG_NOSIGNAL) < 0) std::abort();
    shutdown(fd, SHUT_WR);
    std::array<char, 65536> answer;
    while (recv(fd, answer.data(), answer.size(), 0) > 0) {
    }
    close(fd);
}

}  // namespace

std::vector<Reader> readers() {
    return {{"store", planted_store, read_store}, {"service", planted_requests, read_requests}};
}
