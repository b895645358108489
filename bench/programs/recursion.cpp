// Allocates in recursive functions: many stacks from few lines. Prints its wall time and its CPU
// time in seconds.
//
//   bench-recursion tree DEPTH ROUNDS      a binary tree, made and freed
//   bench-recursion parser DEPTH ROUNDS    expressions, parsed by recursive descent into a tree
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>

namespace {

struct Node {
    Node *left = nullptr, *right = nullptr;
};

__attribute__((noinline)) Node* make(int depth) {
    Node* node = new Node;
    if (depth > 0) {
        node->left = make(depth - 1);
        node->right = make(depth - 1);
    }
    return node;
}

__attribute__((noinline)) void destroy(Node* node) {
    if (node->left != nullptr) destroy(node->left);
    if (node->right != nullptr) destroy(node->right);
    delete node;
}

// Sums of products of numbers and of expressions in brackets.
class Parser {
public:
    struct Expression {
        char operation;
        std::unique_ptr<Expression> left, right;
    };
    explicit Parser(const char* text) : next_(text) {}

    __attribute__((noinline)) std::unique_ptr<Expression> sum() {
        auto left = product();
        while (*next_ == '+') left = join(std::move(left), &Parser::product);
        return left;
    }

private:
    using Rule = std::unique_ptr<Expression> (Parser::*)();

    __attribute__((noinline)) std::unique_ptr<Expression> join(std::unique_ptr<Expression> left,
                                                               Rule rule) {
        const char operation = *next_++;
        auto joined = std::make_unique<Expression>();
        joined->operation = operation;
        joined->left = std::move(left);
        joined->right = (this->*rule)();
        return joined;
    }
    __attribute__((noinline)) std::unique_ptr<Expression> product() {
        auto left = atom();
        while (*next_ == '*') left = join(std::move(left), &Parser::atom);
        return left;
    }
    __attribute__((noinline)) std::unique_ptr<Expression> atom() {
        if (*next_ != '(') {
            auto number = std::make_unique<Expression>();
            number->operation = *next_++;
            return number;
        }
        ++next_;
        auto inner = sum();
        ++next_;
        return inner;
    }

    const char* next_;
};

// An expression that nests to a depth, in a shape that a seed decides.
void write(std::string& text, int depth, unsigned& seed) {
    seed = seed * 1664525 + 1013904223;
    if (depth == 0 || (depth < 8 && seed >> 30 == 0)) {
        text += '1';
        return;
    }
    text += '(';
    write(text, depth - 1, seed);
    text += seed >> 31 != 0 ? '+' : '*';
    write(text, depth - 1, seed);
    text += ')';
}

double seconds(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    const int depth = std::atoi(argv[2]), rounds = std::atoi(argv[3]);
    std::string text;
    unsigned seed = 1;
    write(text, depth, seed);
    const double start = seconds(CLOCK_MONOTONIC), cpu_start = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int k = 0; k < rounds; ++k) {
        if (std::strcmp(argv[1], "tree") == 0) destroy(make(depth));
        else Parser(text.c_str()).sum();
    }
    std::printf("%f\n%f\n", seconds(CLOCK_MONOTONIC) - start,
                seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_start);
}
