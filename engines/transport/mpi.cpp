// The transport over MPI. It uses only C calls of MPI-3, so this source is compiled for every MPI,
// including SimGrid's.
//
// Compiled with ASSAY_SIMULATED it runs in SimGrid: host and clock are those of the simulated
// platform. Calls that would poll block instead, because simulated time advances only while a rank
// waits.
#include <fmt/format.h>
#define OMPI_SKIP_MPICXX 1  // the C interface only
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#ifdef ASSAY_SIMULATED
#include <xbt/config.h>
#endif
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "core/record.hpp"
#include "core/topology.hpp"
#include "transport/check.hpp"
#ifdef ASSAY_SIMULATED
#include "transport/simulated_requests.hpp"
#else
#include "transport/mpi_requests.hpp"
#include "transport/yield_or_sleep.hpp"
#endif
#include "transport/transport.hpp"
#include "transport/watchdog.hpp"

namespace assay {
namespace {

#ifdef ASSAY_SIMULATED
constexpr bool in_simulator = true;
#else
constexpr bool in_simulator = false;
#endif

// Waits until the launcher has read this rank's output: 2 s at most for the pipe to be empty, then
// 100 ms for the launcher's own buffers. MPICH's launcher drops output that it has not forwarded
// when a rank aborts, and with it the reason for the abort.
void drain_output() {
    using namespace std::chrono_literals;
    int waiting = 0;
    for (int i = 0; i < 200; ++i) {
        if (ioctl(STDOUT_FILENO, FIONREAD, &waiting) != 0 || waiting == 0) break;
        std::this_thread::sleep_for(10ms);
    }
    std::this_thread::sleep_for(100ms);
}

constexpr int gather_tag = 32000;  // no measurement uses it; MPI guarantees tags up to 32767

// Bytes that one MPI_Gatherv may move; tests make it small.
long long max_gathered() {
    const char* text = std::getenv("ASSAY_MAX_GATHERED");
    return text ? std::strtoll(text, nullptr, 10) : std::numeric_limits<int>::max();
}

// Makes the memory of a window present. MPI shares the windows of a host's ranks through files,
// mostly in /dev/shm: what has no room there would end a rank with SIGBUS when it is used. Returns
// false if there is no room; true also where the kernel (before 5.14) cannot tell.
bool populate([[maybe_unused]] std::byte* base, [[maybe_unused]] std::size_t bytes) {
#ifdef ASSAY_SIMULATED
    return true;
#else
    constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, which older headers lack
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(base) / page * page;
    const std::size_t length = reinterpret_cast<std::uintptr_t>(base) + bytes - first;
    return bytes == 0 || madvise(reinterpret_cast<void*>(first), length, populate_write) == 0 ||
           (errno != EFAULT && errno != ENOMEM);
#endif
}

class Mpi final : public Transport {
public:
    Mpi() {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
        MPI_Comm_size(MPI_COMM_WORLD, &size_);
    }
    ~Mpi() override {
        if (window_ != MPI_WIN_NULL) free_window();
    }

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    std::string library() const override;
    bool simulated() const override { return in_simulator; }
    std::string host() const override;
#ifdef ASSAY_SIMULATED
    // MPI_Wtime() would take simulated time.
    Nanoseconds clock() const override { return SimulatedRequests::clock(); }
#endif

    Ticket send(const void* data, std::size_t bytes, int peer, int tag) override {
        const int n = static_cast<int>(bytes);
#ifdef ASSAY_SIMULATED
        const MPI_Comm communicator = requests_.communicator(tag);
        if (bytes < max_detached_bytes_)
            return requests_.send_copy(data, bytes, peer, tag, communicator);
        return requests_.begin([&](MPI_Request* request) {
            MPI_Issend(data, n, MPI_BYTE, peer, tag, communicator, request);
        });
#else
        return requests_.begin([&](MPI_Request* request) {
            MPI_Isend(data, n, MPI_BYTE, peer, tag, MPI_COMM_WORLD, request);
        });
#endif
    }
    Ticket receive(void* data, std::size_t bytes, int peer, int tag) override {
#ifdef ASSAY_SIMULATED
        return requests_.receive(data, bytes, peer, tag);
#else
        return requests_.begin([&](MPI_Request* request) {
            MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, MPI_COMM_WORLD, request);
        });
#endif
    }
    Ticket get(void* data, std::size_t bytes, int peer, std::size_t offset) override {
        const int n = static_cast<int>(bytes);
        return requests_.begin([&](MPI_Request* request) {
            MPI_Rget(data, n, MPI_BYTE, peer, static_cast<MPI_Aint>(offset), n, MPI_BYTE, window_,
                     request);
        });
    }
    void put(const void* data, std::size_t bytes, int peer, std::size_t offset) override {
        const int n = static_cast<int>(bytes);
        MPI_Put(data, n, MPI_BYTE, peer, static_cast<MPI_Aint>(offset), n, MPI_BYTE, window_);
    }
    void flush(int peer) override { MPI_Win_flush(peer, window_); }

    std::byte* create_window(std::size_t bytes) override;
    void free_window() override {
        MPI_Win_unlock_all(window_);
        MPI_Win_free(&window_);
        window_memory_.reset();
    }
    bool has_private_window() const override { return window_memory_ != nullptr; }

#ifdef ASSAY_SIMULATED
    void poll(std::vector<Ticket>& completed) override {
        requests_.poll(completed, std::exchange(wake_, 0));
    }
    void wake_at(Nanoseconds time) override { wake_ = time; }
    void limit_unreceived(int messages) override { requests_.limit_unreceived(messages); }
    void pause(Nanoseconds duration) override {
        sg_actor_sleep_for(static_cast<double>(duration) * 1e-9);
    }
    std::byte* allocate(std::size_t bytes) override {
        return static_cast<std::byte*>(SMPI_SHARED_MALLOC(bytes));
    }
    void release(std::byte* memory) override { SMPI_SHARED_FREE(memory); }
    bool keeps_contents() const override { return false; }
#else
    void poll(std::vector<Ticket>& completed) override { requests_.poll(completed); }
    void idle_wait(Nanoseconds idle, Nanoseconds limit) override { yield_or_sleep(idle, limit); }
#endif

    bool has_calls() const override { return true; }
    void call_send(const void* data, std::size_t bytes, int peer, int tag) override {
        MPI_Send(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, MPI_COMM_WORLD);
    }
    void call_receive(void* data, std::size_t bytes, int peer, int tag) override {
        MPI_Recv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    }
    Ticket call_isend(const void* data, std::size_t bytes, int peer, int tag) override {
        return requests_.begin([&](MPI_Request* request) {
            MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, MPI_COMM_WORLD, request);
        });
    }

    bool has_all_to_all() const override { return true; }
    void all_to_all(const std::byte* from, std::byte* to, std::size_t bytes_per_rank) override {
        const int n = static_cast<int>(bytes_per_rank);
        MPI_Alltoall(from, n, MPI_BYTE, to, n, MPI_BYTE, MPI_COMM_WORLD);
    }
    void all_to_all(const std::byte* from, std::span<const int> sent, std::byte* to,
                    std::span<const int> received) override;

    void begin_sum(std::span<double> values) override { begin(values, MPI_SUM); }
    void begin_max(std::span<double> values) override { begin(values, MPI_MAX); }
    bool test_collective() override;
    std::vector<std::string> gather(const std::string& value) override;
    void broadcast(std::string& value) override;

    [[noreturn]] void abort(int status) override {
        drain_output();
        MPI_Abort(MPI_COMM_WORLD, status);
        _exit(status);
    }

private:
    void begin(std::span<double> values, MPI_Op op) {
        if (window_ != MPI_WIN_NULL) MPI_Win_sync(window_);
        const int n = static_cast<int>(values.size());
        if (in_simulator)  // in SimGrid's nonblocking reduction every rank sends to every other
            MPI_Allreduce(MPI_IN_PLACE, values.data(), n, MPI_DOUBLE, op, MPI_COMM_WORLD);
        else
            MPI_Iallreduce(MPI_IN_PLACE, values.data(), n, MPI_DOUBLE, op, MPI_COMM_WORLD,
                           &collective_);
    }

    // The values of all ranks; `lengths` is empty but on rank 0.
    std::vector<std::string> gather_with_gatherv(const std::string& value,
                                                 const std::vector<long long>& lengths);
    std::vector<std::string> gather_by_messages(const std::string& value,
                                                const std::vector<long long>& lengths);

    int rank_ = 0, size_ = 0;
#ifdef ASSAY_SIMULATED
    SimulatedRequests requests_;
    // SimGrid sends smaller messages from a copy, so MPI_Send returns at once. An MPI_Isend that is
    // waited for among all requests takes far longer. The limit of 64 KiB holds for a platform with
    // a higher threshold: a rank could otherwise start any number of copies of a flow's messages.
    const std::size_t max_detached_bytes_ =
        static_cast<std::size_t>(std::min(sg_cfg_get_int("smpi/send-is-detached-thresh"), 65536));
    Nanoseconds wake_ = 0;  // see wake_at(); 0: none
#else
    MpiRequests requests_;
#endif
    MPI_Request collective_ = MPI_REQUEST_NULL;
    MPI_Win window_ = MPI_WIN_NULL;
    std::unique_ptr<std::byte[]> window_memory_;  // where MPI's own has no room
};

std::string Mpi::library() const {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    // Open MPI: one line, cut at the first comma. MPICH: lines of "Name:\tvalue", the first has
    // the version.
    std::string version(text, static_cast<std::size_t>(length));
    version.resize(std::min(version.find_first_of("\n,"), version.size()));
    std::ranges::replace_if(version, [](char c) { return c == '\t' || c == ':'; }, ' ');
    std::string collapsed;  // without repeated spaces
    for (const char c : version)
        if (c != ' ' || (!collapsed.empty() && collapsed.back() != ' ')) collapsed += c;
    return collapsed;
}

std::string Mpi::host() const {
    if (!in_simulator) return host_name();
    char name[MPI_MAX_PROCESSOR_NAME];
    int length = 0;
    MPI_Get_processor_name(name, &length);
    return {name, static_cast<std::size_t>(length)};
}

// MPI reports the errors of this scope instead of ending the job.
class ReportedErrors {
public:
    ReportedErrors() {
        MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler_);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    }
    ~ReportedErrors() {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler_);
        MPI_Errhandler_free(&handler_);
    }
    ReportedErrors(const ReportedErrors&) = delete;
    ReportedErrors& operator=(const ReportedErrors&) = delete;

private:
    MPI_Errhandler handler_;
};

std::byte* Mpi::create_window(std::size_t bytes) {
    const ReportedErrors scope;
    const auto size = static_cast<MPI_Aint>(bytes);
    void* base = nullptr;
    const int allocated = MPI_Win_allocate(size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window_);
    if (allocated != MPI_SUCCESS) window_ = MPI_WIN_NULL;
    int has_room = allocated == MPI_SUCCESS && populate(static_cast<std::byte*>(base), bytes);
    MPI_Allreduce(MPI_IN_PLACE, &has_room, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (has_room == 0) {
        if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
        window_memory_.reset(new std::byte[bytes]);
        base = window_memory_.get();
        if (MPI_Win_create(base, size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_) != MPI_SUCCESS)
            throw Error("shared memory has no room for this MPI's windows, and it has no others",
                        "make /dev/shm larger, or lower --size");
    }
    MPI_Win_lock_all(0, window_);
    return static_cast<std::byte*>(base);
}

void Mpi::all_to_all(const std::byte* from, std::span<const int> sent, std::byte* to,
                     std::span<const int> received) {
    std::vector<int> sent_from(sent.size()), received_to(received.size());
    std::exclusive_scan(sent.begin(), sent.end(), sent_from.begin(), 0);
    std::exclusive_scan(received.begin(), received.end(), received_to.begin(), 0);
    MPI_Alltoallv(from, sent.data(), sent_from.data(), MPI_BYTE, to, received.data(),
                  received_to.data(), MPI_BYTE, MPI_COMM_WORLD);
}

bool Mpi::test_collective() {
    int done = 1;  // in the simulator the collective has completed in begin()
    if (!in_simulator) MPI_Test(&collective_, &done, MPI_STATUS_IGNORE);
    if (done && window_ != MPI_WIN_NULL) MPI_Win_sync(window_);
    return done != 0;
}

// MPI_Gatherv counts bytes in an int. Longer totals (10,000 ranks with 200 kB each) are sent rank
// by rank.
std::vector<std::string> Mpi::gather(const std::string& value) {
    const std::size_t n = rank_ == 0 ? static_cast<std::size_t>(size_) : 0;
    const auto length = static_cast<long long>(value.size());
    std::vector<long long> lengths(n);
    MPI_Gather(&length, 1, MPI_LONG_LONG, lengths.data(), 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
    long long total = std::accumulate(lengths.begin(), lengths.end(), 0LL);
    MPI_Bcast(&total, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
    return total <= max_gathered() ? gather_with_gatherv(value, lengths)
                                   : gather_by_messages(value, lengths);
}

std::vector<std::string> Mpi::gather_with_gatherv(const std::string& value,
                                                  const std::vector<long long>& lengths) {
    const std::vector<int> counts(lengths.begin(), lengths.end());
    std::vector<int> starts(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), 0);
    std::string all(counts.empty() ? 0 : static_cast<std::size_t>(starts.back() + counts.back()),
                    '\0');
    MPI_Gatherv(value.data(), static_cast<int>(value.size()), MPI_CHAR, all.data(), counts.data(),
                starts.data(), MPI_CHAR, 0, MPI_COMM_WORLD);
    std::vector<std::string> parts;
    parts.reserve(counts.size());
    for (std::size_t i = 0; i < counts.size(); ++i)
        parts.push_back(
            all.substr(static_cast<std::size_t>(starts[i]), static_cast<std::size_t>(counts[i])));
    return parts;
}

std::vector<std::string> Mpi::gather_by_messages(const std::string& value,
                                                 const std::vector<long long>& lengths) {
    static constexpr std::size_t chunk = 1 << 30;
    const auto in_chunks = [](std::size_t bytes, const auto& transfer) {
        for (std::size_t offset = 0; offset < bytes; offset += chunk)
            transfer(offset, static_cast<int>(std::min(chunk, bytes - offset)));
    };
    if (rank_ != 0) {
        in_chunks(value.size(), [&](std::size_t offset, int bytes) {
            MPI_Send(value.data() + offset, bytes, MPI_CHAR, 0, gather_tag, MPI_COMM_WORLD);
        });
        return {};
    }
    std::vector<std::string> parts(lengths.size());
    parts[0] = value;
    for (std::size_t i = 1; i < parts.size(); ++i) {
        parts[i].resize(static_cast<std::size_t>(lengths[i]));
        in_chunks(parts[i].size(), [&](std::size_t offset, int bytes) {
            MPI_Recv(parts[i].data() + offset, bytes, MPI_CHAR, static_cast<int>(i), gather_tag,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        });
    }
    return parts;
}

void Mpi::broadcast(std::string& value) {
    unsigned long length = value.size();
    MPI_Bcast(&length, 1, MPI_UNSIGNED_LONG, 0, MPI_COMM_WORLD);
    value.resize(length);
    MPI_Bcast(value.data(), static_cast<int>(length), MPI_CHAR, 0, MPI_COMM_WORLD);
}

// Seconds that MPI_Init may take before this host reports a failure.
double start_limit() {
    const char* text = std::getenv("ASSAY_START_TIMEOUT");
    const double limit = text ? std::strtod(text, nullptr) : 0;
    return limit > 0 ? limit : 120;
}

}  // namespace

void for_each_rank(int& argc, char**& argv, const std::function<void(Transport&)>& body) {
    if (in_simulator) {
        MPI_Init(&argc, &argv);
#ifdef ASSAY_SIMULATED
        sg_cfg_set_double("smpi/test", 0);
#endif
    } else {
        const double limit = start_limit();
        Watchdog watchdog(static_cast<Nanoseconds>(limit * 1e9), [limit] {
            Sink().failure(
                fmt::format("{}: MPI_Init has not returned for {} s", host_name(), limit),
                "check that every listed host has started and can be reached from this one",
                {.host = host_name()});
            _exit(2);
        });
        watchdog.enter(now());
        int provided = 0;  // only this thread calls MPI
        MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    }
    const auto finish = [](Mpi* mpi) {
        delete mpi;
        MPI_Finalize();
    };
    const std::unique_ptr<Mpi, decltype(finish)> mpi(new Mpi, finish);
    body(*mpi);
}

void check_transport(const std::string& name) {
    throw Error(fmt::format("this engine has MPI alone, not '{}'", name), "ask assay-probe");
}

}  // namespace assay
