// The main program of all fuzz targets. Runs the readers of a target on mutated inputs, each for a
// time or a number of rounds.
//
//     fuzz-NAME [--reader NAME] [--seconds S] [--rounds N] [--seed N] [FILE ...]
//     fuzz-NAME --list
//
// FILEs are run once each, unchanged, before the rounds begin. Their names are READER-...: the
// reader that gets them. An input that makes a sanitizer end the program, or that takes longer than
// 20 s, is stored as fuzz-failure/READER-SEED-ROUND in the current folder. To repeat the failure,
// pass it as FILE.
#include <fcntl.h>
#include <sanitizer/common_interface_defs.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "core/error.hpp"
#include "fuzz.hpp"

namespace {

constexpr unsigned input_limit_s = 20;
constexpr std::size_t max_input_bytes = 1 << 16;

const Input* current_input = nullptr;
char failure_name[256];

// Stores the present input. It is also called in a signal handler, so it must not allocate.
void store_failing_input() {
    if (current_input == nullptr) return;
    const int fd = open(failure_name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return;
    for (std::size_t done = 0; done < current_input->size();) {
        const ssize_t n = write(fd, current_input->data() + done, current_input->size() - done);
        if (n <= 0) break;
        done += static_cast<std::size_t>(n);
    }
    close(fd);
    std::fprintf(stderr, "the input is stored in %s\n", failure_name);
    current_input = nullptr;
}

}  // namespace

// The runtime of UBSan calls this; that of ASan has __sanitizer_set_death_callback.
extern "C" void __ubsan_on_report() { store_failing_input(); }

namespace {

void on_time_limit(int) {
    std::fprintf(stderr, "an input takes longer than %u s\n", input_limit_s);
    store_failing_input();
    _exit(1);
}

class Mutator {
public:
    Mutator(std::vector<Input> seeds, std::uint64_t seed)
        : seeds_(std::move(seeds)), random_(seed) {}
    Input next() {
        Input input = seeds_[random_below(seeds_.size())];
        for (std::size_t k = 1 + random_below(random_below(8) + 1); k > 0; --k) mutate(input);
        if (input.size() > max_input_bytes) input.resize(max_input_bytes);
        return input;
    }

private:
    std::size_t random_below(std::size_t end) { return end == 0 ? 0 : random_() % end; }
    void mutate(Input& input) {
        const std::size_t offset = random_below(input.size());
        switch (random_below(8)) {
            case 0:
                if (!input.empty())
                    input[offset] ^= static_cast<std::uint8_t>(1u << random_below(8));
                break;
            case 1:
                if (!input.empty()) input[offset] = static_cast<std::uint8_t>(random_());
                break;
            case 2: overwrite_with_number(input, offset); break;
            case 3: {  // remove some bytes
                const std::size_t bytes =
                    random_below(std::min<std::size_t>(64, input.size() - offset) + 1);
                input.erase(input.begin() + static_cast<std::ptrdiff_t>(offset),
                            input.begin() + static_cast<std::ptrdiff_t>(offset + bytes));
                break;
            }
            case 4: {  // repeat some bytes
                const std::size_t bytes =
                    random_below(std::min<std::size_t>(256, input.size() - offset) + 1);
                const Input part(input.begin() + static_cast<std::ptrdiff_t>(offset),
                                 input.begin() + static_cast<std::ptrdiff_t>(offset + bytes));
                input.insert(input.begin() + static_cast<std::ptrdiff_t>(offset), part.begin(),
                             part.end());
                break;
            }
            case 5: {  // replace the rest with a part of another seed input
                const Input& other = seeds_[random_below(seeds_.size())];
                const std::size_t from = random_below(other.size());
                input.resize(offset);
                input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(from),
                             other.end());
                break;
            }
            case 6: {  // insert a number as text
                static constexpr const char* numbers[] = {"0",
                                                          "1",
                                                          "ffffffffffffffff",
                                                          "7fffffffffffffff",
                                                          "80000000",
                                                          "fffffffe",
                                                          "f200000000000001",
                                                          "18446744073709551615",
                                                          "-1",
                                                          "1e400",
                                                          "nan"};
                const std::string text = numbers[random_below(std::size(numbers))];
                input.insert(input.begin() + static_cast<std::ptrdiff_t>(offset), text.begin(),
                             text.end());
                break;
            }
            default: input.resize(random_below(input.size() + 1)); break;  // truncate
        }
    }
    void overwrite_with_number(Input& input, std::size_t offset) {
        static constexpr std::uint64_t numbers[] = {0,
                                                    1,
                                                    0x7f,
                                                    0x80,
                                                    0xff,
                                                    0x7fff,
                                                    0xffff,
                                                    0x7fffffff,
                                                    0x80000000,
                                                    0xffffffff,
                                                    0x7fffffffffffffff,
                                                    0x8000000000000000,
                                                    ~std::uint64_t{0},
                                                    std::uint64_t{1} << 24,
                                                    std::uint64_t{1} << 47,
                                                    std::uint64_t{1} << 56};
        const std::uint64_t number =
            numbers[random_below(std::size(numbers))] + random_below(3) - 1;
        const std::size_t bytes = std::size_t{1} << random_below(4);
        if (offset + bytes <= input.size()) std::memcpy(input.data() + offset, &number, bytes);
    }

    std::vector<Input> seeds_;
    std::mt19937_64 random_;
};

void run(const Reader& reader, const Input& input, const std::string& name) {
    std::snprintf(failure_name, sizeof failure_name, "fuzz-failure/%s-%s", reader.name,
                  name.c_str());
    current_input = &input;
    alarm(input_limit_s);
    try {
        reader.read(input.data(), input.size());
    } catch (const assay::Error&) {
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        store_failing_input();
        std::exit(1);
    }
    alarm(0);
    current_input = nullptr;
}

void run_file(const std::vector<Reader>& all_readers, const std::string& path) {
    const std::string name = path.substr(path.rfind('/') + 1);
    for (const Reader& reader : all_readers) {
        if (name.substr(0, name.find('-')) != reader.name) continue;
        std::ifstream in(path, std::ios::binary);
        run(reader, Input((std::istreambuf_iterator<char>(in)), {}), "file");
    }
}

struct Settings {
    double seconds = 0;
    std::uint64_t rounds = 0, seed = std::random_device{}();
    std::string selected_reader;
};

void fuzz_reader(const Reader& reader, const Settings& settings) {
    const std::vector<Input> seed_inputs = reader.seed_inputs();
    for (const Input& input : seed_inputs) run(reader, input, "seed-input");
    Mutator mutator(seed_inputs, settings.seed);
    const auto start = std::chrono::steady_clock::now();
    std::uint64_t round = 0;
    double elapsed_s = 0;
    while (round < settings.rounds || elapsed_s < settings.seconds) {
        run(reader, mutator.next(), std::to_string(settings.seed) + "-" + std::to_string(round));
        ++round;
        elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    std::printf("%-12s %10llu rounds from seed %llu in %.0f s: no failure\n", reader.name,
                static_cast<unsigned long long>(round),
                static_cast<unsigned long long>(settings.seed), elapsed_s);
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    Settings settings;
    std::vector<std::string> files;
    const std::vector<Reader> all_readers = readers();
    for (int k = 1; k < argc; ++k) {
        const std::string option = argv[k];
        if (option == "--list") {
            for (const Reader& reader : all_readers) std::printf("%s\n", reader.name);
            return 0;
        }
        if (option == "--reader" && k + 1 < argc) settings.selected_reader = argv[++k];
        else if (option == "--seconds" && k + 1 < argc)
            settings.seconds = std::strtod(argv[++k], nullptr);
        else if (option == "--rounds" && k + 1 < argc)
            settings.rounds = std::strtoull(argv[++k], nullptr, 10);
        else if (option == "--seed" && k + 1 < argc)
            settings.seed = std::strtoull(argv[++k], nullptr, 10);
        else files.push_back(option);
    }
    mkdir("fuzz-failure", 0700);
    __sanitizer_set_death_callback(store_failing_input);
    signal(SIGALRM, on_time_limit);
    for (const std::string& file : files) run_file(all_readers, file);
    bool has_run = false;
    for (const Reader& reader : all_readers) {
        if (!settings.selected_reader.empty() && settings.selected_reader != reader.name) continue;
        fuzz_reader(reader, settings);
        has_run = true;
    }
    return has_run ? 0 : 2;
}
