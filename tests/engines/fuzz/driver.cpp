// Runs a fuzz target on mutated inputs: for a time, or so many rounds.
//
//     fuzz-NAME [--seconds S] [--rounds N] [--seed N] [FILE ...]
//
// FILEs are run once each as they are, before the rounds begin. An input that makes a sanitizer
// stop the program, or that takes longer than the limit, is kept as fuzz-failure-NAME-SEED-ROUND in
// the current folder; given as FILE it fails again.
#include <fcntl.h>
#include <sanitizer/common_interface_defs.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

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

void run(const Input& input) {
    running = &input;
    alarm(input_limit_s);
    LLVMFuzzerTestOneInput(input.data(), input.size());
    alarm(0);
    running = nullptr;
}

}  // namespace

int main(int argc, char** argv) {
    double seconds = 0;
    std::uint64_t rounds = 0, seed = std::random_device{}();
    std::vector<std::string> files;
    for (int k = 1; k < argc; ++k) {
        const std::string option = argv[k];
        if (option == "--seconds" && k + 1 < argc) seconds = std::strtod(argv[++k], nullptr);
        else if (option == "--rounds" && k + 1 < argc)
            rounds = std::strtoull(argv[++k], nullptr, 10);
        else if (option == "--seed" && k + 1 < argc) seed = std::strtoull(argv[++k], nullptr, 10);
        else files.push_back(option);
    }
    std::string name = argv[0];
    name = name.substr(name.rfind('/') + 1);
    __sanitizer_set_death_callback(keep_input);
    signal(SIGALRM, too_long);
    for (const std::string& file : files) {
        std::ifstream in(file, std::ios::binary);
        std::snprintf(failure_name, sizeof failure_name, "%s", "/dev/null");
        run(Input((std::istreambuf_iterator<char>(in)), {}));
    }
    const std::vector<Input> planted = planted_inputs();
    for (const Input& input : planted) {
        std::snprintf(failure_name, sizeof failure_name, "fuzz-failure-%s-planted", name.c_str());
        run(input);
    }
    Mutator mutator(planted, seed);
    const auto start = std::chrono::steady_clock::now();
    std::uint64_t round = 0;
    double passed = 0;
    while (round < rounds || passed < seconds) {
        std::snprintf(failure_name, sizeof failure_name, "fuzz-failure-%s-%llu-%llu", name.c_str(),
                      static_cast<unsigned long long>(seed),
                      static_cast<unsigned long long>(round));
        run(mutator.next());
        ++round;
        passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    std::printf("%s: %llu rounds from seed %llu in %.0f s: no failure\n", name.c_str(),
                static_cast<unsigned long long>(round), static_cast<unsigned long long>(seed),
                passed);
    return 0;
}
