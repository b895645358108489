// Runs the readers of a fuzz target on mutated inputs: each for a time, or so many rounds.
//
//     fuzz-NAME [--reader NAME] [--seconds S] [--rounds N] [--seed N] [FILE ...]
//     fuzz-NAME --list
//
// FILEs are inputs of the reader that is the first part of their name (READER-...), run once each
// as they are, before the rounds begin. An input that makes a sanitizer stop the program, or that
// takes longer than the limit, is kept as fuzz-failure/READER-SEED-ROUND in the current folder;
// given as FILE it fails again.
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

const Input* running = nullptr;
char failure_name[256];

// Called from a signal handler too: no allocation.
void keep_input() {
    if (running == nullptr) return;
    const int fd = open(failure_name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return;
    for (std::size_t done = 0; done < running->size();) {
        const ssize_t n = write(fd, running->data() + done, running->size() - done);
        if (n <= 0) break;
        done += static_cast<std::size_t>(n);
    }
    close(fd);
    std::fprintf(stderr, "the input is kept in %s\n", failure_name);
    running = nullptr;
}

}  // namespace

// The runtime of UBSan calls this; that of ASan has __sanitizer_set_death_callback.
extern "C" void __ubsan_on_report() { keep_input(); }

namespace {

void too_long(int) {
    std::fprintf(stderr, "an input takes longer than %u s\n", input_limit_s);
    keep_input();
    _exit(1);
}

class Mutator {
public:
    Mutator(std::vector<Input> seeds, std::uint64_t seed)
        : seeds_(std::move(seeds)), random_(seed) {}
    Input next() {
        Input input = seeds_[below(seeds_.size())];
        for (std::size_t k = 1 + below(below(8) + 1); k > 0; --k) mutate(input);
        if (input.size() > max_input_bytes) input.resize(max_input_bytes);
        return input;
    }

private:
    std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }
    void mutate(Input& input) {
        const std::size_t at = below(input.size());
        switch (below(8)) {
            case 0:
                if (!input.empty()) input[at] ^= static_cast<std::uint8_t>(1u << below(8));
                break;
            case 1:
                if (!input.empty()) input[at] = static_cast<std::uint8_t>(random_());
                break;
            case 2: put_number(input, at); break;
            case 3: {  // cut out
                const std::size_t bytes = below(std::min<std::size_t>(64, input.size() - at) + 1);
                input.erase(input.begin() + static_cast<std::ptrdiff_t>(at),
                            input.begin() + static_cast<std::ptrdiff_t>(at + bytes));
                break;
            }
            case 4: {  // double
                const std::size_t bytes = below(std::min<std::size_t>(256, input.size() - at) + 1);
                const Input part(input.begin() + static_cast<std::ptrdiff_t>(at),
                                 input.begin() + static_cast<std::ptrdiff_t>(at + bytes));
                input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), part.begin(),
                             part.end());
                break;
            }
            case 5: {  // the rest from another seed
                const Input& other = seeds_[below(seeds_.size())];
                const std::size_t from = below(other.size());
                input.resize(at);
                input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(from),
                             other.end());
                break;
            }
            case 6: {  // a number in text
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
                const std::string text = numbers[below(std::size(numbers))];
                input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), text.begin(),
                             text.end());
                break;
            }
            default: input.resize(below(input.size() + 1)); break;
        }
    }
    void put_number(Input& input, std::size_t at) {
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
        const std::uint64_t number = numbers[below(std::size(numbers))] + below(3) - 1;
        const std::size_t bytes = std::size_t{1} << below(4);
        if (at + bytes <= input.size()) std::memcpy(input.data() + at, &number, bytes);
    }

    std::vector<Input> seeds_;
    std::mt19937_64 random_;
};

void run(const Reader& reader, const Input& input, const std::string& name) {
    std::snprintf(failure_name, sizeof failure_name, "fuzz-failure/%s-%s", reader.name,
                  name.c_str());
    running = &input;
    alarm(input_limit_s);
    try {
        reader.read(input.data(), input.size());
    } catch (const assay::Error&) {
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        keep_input();
        std::exit(1);
    }
    alarm(0);
    running = nullptr;
}

void run_file(const std::vector<Reader>& all, const std::string& path) {
    const std::string name = path.substr(path.rfind('/') + 1);
    for (const Reader& reader : all) {
        if (name.substr(0, name.find('-')) != reader.name) continue;
        std::ifstream in(path, std::ios::binary);
        run(reader, Input((std::istreambuf_iterator<char>(in)), {}), "file");
    }
}

struct Settings {
    double seconds = 0;
    std::uint64_t rounds = 0, seed = std::random_device{}();
    std::string only;
};

void fuzz_reader(const Reader& reader, const Settings& settings) {
    const std::vector<Input> planted = reader.planted();
    for (const Input& input : planted) run(reader, input, "planted");
    Mutator mutator(planted, settings.seed);
    const auto start = std::chrono::steady_clock::now();
    std::uint64_t round = 0;
    double passed = 0;
    while (round < settings.rounds || passed < settings.seconds) {
        run(reader, mutator.next(), std::to_string(settings.seed) + "-" + std::to_string(round));
        ++round;
        passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    std::printf("%-12s %10llu rounds from seed %llu in %.0f s: no failure\n", reader.name,
                static_cast<unsigned long long>(round),
                static_cast<unsigned long long>(settings.seed), passed);
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    Settings settings;
    std::vector<std::string> files;
    const std::vector<Reader> all = readers();
    for (int k = 1; k < argc; ++k) {
        const std::string option = argv[k];
        if (option == "--list") {
            for (const Reader& reader : all) std::printf("%s\n", reader.name);
            return 0;
        }
        if (option == "--reader" && k + 1 < argc) settings.only = argv[++k];
        else if (option == "--seconds" && k + 1 < argc)
            settings.seconds = std::strtod(argv[++k], nullptr);
        else if (option == "--rounds" && k + 1 < argc)
            settings.rounds = std::strtoull(argv[++k], nullptr, 10);
        else if (option == "--seed" && k + 1 < argc)
            settings.seed = std::strtoull(argv[++k], nullptr, 10);
        else files.push_back(option);
    }
    mkdir("fuzz-failure", 0700);
    __sanitizer_set_death_callback(keep_input);
    signal(SIGALRM, too_long);
    for (const std::string& file : files) run_file(all, file);
    bool any = false;
    for (const Reader& reader : all) {
        if (!settings.only.empty() && settings.only != reader.name) continue;
        fuzz_reader(reader, settings);
        any = true;
    }
    return any ? 0 : 2;
}
