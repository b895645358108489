// The main program of every test executable: doctest's, with a limit of time.
//
// ctest ends a test that takes too long by a signal that leaves no trace. A little before, at
// ASSAY_TEST_SECONDS, this program names the test case that runs and writes the stack of the thread
// that the signal interrupts.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <execinfo.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

namespace {

const char* running = "no test case";

void write_text(const char* text) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) _exit(1);
}

void on_time_limit(int) {
    write_text("the time limit is over in: ");
    write_text(running);
    write_text("\n");
    void* frames[64];
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    std::abort();
}

struct RunningCase : doctest::IReporter {
    explicit RunningCase(const doctest::ContextOptions&) {}
    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats&) override {}
    void test_case_start(const doctest::TestCaseData& data) override { running = data.m_name; }
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats&) override {}
    void test_case_exception(const doctest::TestCaseException&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData&) override {}
    void log_message(const doctest::MessageData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}
};

REGISTER_LISTENER("running", 1, RunningCase);

}  // namespace

int main(int argc, char** argv) {
    if (const char* seconds = std::getenv("ASSAY_TEST_SECONDS")) {
        void* frame;
        backtrace(&frame, 1);  // loads what the handler needs
        std::signal(SIGALRM, on_time_limit);
        alarm(static_cast<unsigned>(std::atoi(seconds)));
    }
    doctest::Context context(argc, argv);
    return context.run();
}
