// The allocator benchmarks: runs the tasks of each measurement and writes its records.
#include "profile/alloc/study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/topology.hpp"
#include "machine/available_memory.hpp"
#include "profile/alloc/measurements.hpp"
#include "profile/alloc/meter.hpp"

namespace assay::alloc {
namespace {

constexpr std::uint64_t reserved_bytes = 512 << 20;  // bytes of memory that must stay free

Task make_task(TaskKind kind, const Study& study) {
    Task task;
    task.kind = kind;
    task.tick_s = study.tick_s();
    return task;
}

// Cases with more bytes first run one process whose results are dropped, since virtual machines
// often get their memory from the host at the first touch.
constexpr std::uint64_t warmup_bytes = 64 << 20;

// The number of processes for one size. Each contributes one first batch.
int process_count(std::uint64_t bytes) {
    return bytes < (64u << 20) ? 5 : bytes < (1u << 30) ? 3 : 2;
}

// Formats a size for progress messages: "4 GiB", "20000000 B".
std::string format_size(std::int64_t size) {
    constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    std::size_t k = 0;
    for (; k < 4 && size % 1024 == 0; ++k) size /= 1024;
    return fmt::format("{} {}", size, units[k]);
}
std::string format_size(std::int64_t size, std::int64_t threads) {
    return fmt::format("{}, {} thread{}", format_size(size), threads, threads == 1 ? "" : "s");
}

struct MetricSeries {
    const char* metric;
    Series series;
};
constexpr MetricSeries first_metrics[] = {{"malloc", Series::malloc_first},
                                          {"first_touch", Series::touch_first},
                                          {"retouch", Series::retouch_first},
                                          {"free", Series::free_first},
                                          {"malloc_faults", Series::malloc_faults_first},
                                          {"first_touch_faults", Series::touch_faults_first},
                                          {"retouch_faults", Series::retouch_faults_first},
                                          {"free_faults", Series::free_faults_first}};
constexpr MetricSeries repeated_metrics[] = {{"malloc", Series::malloc},
                                             {"first_touch", Series::touch},
                                             {"retouch", Series::retouch},
                                             {"free", Series::free},
                                             {"malloc_touch", Series::malloc_touch},
                                             {"pair", Series::pair},
                                             {"overhead", Series::overhead},
                                             {"malloc_faults", Series::malloc_faults},
                                             {"first_touch_faults", Series::touch_faults},
                                             {"retouch_faults", Series::retouch_faults},
                                             {"free_faults", Series::free_faults}};

void study_size(Study& study, std::uint64_t size, std::uint32_t threads, double seconds) {
    Json params = {{"size", size}, {"threads", threads}, {"state", "first"}};
    const std::uint64_t bytes = size * threads;
    const int processes = process_count(bytes);
    Task task = make_task(TaskKind::cycle, study);
    task.size = size;
    task.threads = threads;
    task.cycles = bytes < (256u << 20) ? 3 : 1;
    task.seconds = seconds / processes;
    if (bytes >= warmup_bytes) {
        Task warmup = task;
        warmup.kind = TaskKind::first_batch;
        if (!study.run(warmup, 1, bytes, "malloc", params)) return;
    }
    auto samples = study.run(task, processes, bytes, "malloc", params);
    if (!samples) return;
    for (const MetricSeries& metric : first_metrics)
        study.report(metric.metric, params, samples->series(metric.series));
    task.kind = TaskKind::first_batch;
    if (auto touched = study.run(task, processes, bytes, "malloc_touch", params))
        study.report("malloc_touch", params, touched->series(Series::malloc_touch_first));
    params["state"] = "repeated";
    for (const MetricSeries& metric : repeated_metrics)
        study.report(metric.metric, params, samples->series(metric.series));
}

}  // namespace

Allocator parse_allocator(const Options& options) {
    Allocator allocator{
        options.text("allocator"), options.text("library"), {}, !options.flag("no_huge_pages")};
    std::istringstream settings(options.text("settings"));
    for (std::string setting; settings >> setting;) {
        if (setting.find('=') == std::string::npos || setting.front() == '=')
            throw Error("--settings " + setting + ": expected NAME=value",
                        "separate several settings with blanks");
        allocator.settings.push_back(setting);
    }
    return allocator;
}

Study::Study(const Measurement& measurement, const Options& options, Bench& bench)
    : measurement_(measurement),
      sink_(bench.sink),
      allocator_(parse_allocator(options)),
      limit_s_(options.real("limit")),
      tick_s_(measure_tick()),
      subject_{.host = host_name()},
      begin_(now()) {
    find_malloc_library(allocator_, limit_s_);
}

Json Study::add_allocator_name(const Json& params) const {
    Json result = {{"allocator", allocator_.name}};
    result.update(params);
    return result;
}

std::optional<Samples> Study::run(const Task& task, int processes, std::uint64_t bytes,
                                  std::string_view metric, const Json& params) {
    const std::uint64_t available = available_memory();
    if (bytes + bytes / 16 + reserved_bytes > available) {
        sink_.waived(
            measurement_, metric, subject_, add_allocator_name(params),
            fmt::format("it needs {:.1f} GB, and {:.1f} GB are available",
                        1e-9 * static_cast<double>(bytes), 1e-9 * static_cast<double>(available)));
        return std::nullopt;
    }
    Samples samples;
    for (int k = 0; k < processes; ++k) {
        const std::string reason = alloc::run_task(allocator_, task, limit_s_, samples);
        if (reason.empty()) continue;
        sink_.waived(measurement_, metric, subject_, add_allocator_name(params), reason);
        return std::nullopt;
    }
    return samples;
}

void Study::report(std::string_view metric, const Json& params,
                   const std::vector<double>& samples) {
    if (!samples.empty()) report(metric, params, summarize(samples));
}

void Study::report(std::string_view metric, const Json& params, const Summary& summary) {
    sink_.measurement(measurement_, metric, subject_, add_allocator_name(params), summary);
}

void Study::progress(std::size_t finished, std::size_t cases, const std::string& label) {
    const double share = static_cast<double>(finished) / static_cast<double>(cases),
                 elapsed = seconds(now() - begin_);
    sink_.progress(share, label, finished == 0 ? -1 : elapsed / share - elapsed);
}

namespace detail {

void run_cycle_study(const Options& options, Bench& bench) {
    Study study(cycle, options, bench);
    const double rate = 1 / study.tick_s();
    study.report("tick_rate", Json::object(), std::vector{rate});
    const auto sizes = options.integers("sizes"), counts = options.integers("threads");
    std::size_t finished = 0;
    for (const auto threads : counts)
        for (const auto size : sizes) {
            study.progress(finished++, sizes.size() * counts.size(), format_size(size, threads));
            study_size(study, static_cast<std::uint64_t>(size), static_cast<std::uint32_t>(threads),
                       options.real("seconds"));
        }
}

void run_retention_study(const Options& options, Bench& bench) {
    constexpr int processes = 3;
    Study study(retention, options, bench);
    Task task = make_task(TaskKind::retention, study);
    task.total = static_cast<std::uint64_t>(options.integer("total"));
    task.cycles = static_cast<std::uint32_t>(options.integer("cycles"));
    const auto sizes = options.integers("sizes");
    std::size_t finished = 0;
    for (const auto size : sizes) {
        study.progress(finished++, sizes.size(), format_size(size));
        task.size = static_cast<std::uint64_t>(size);
        Json params = {{"size", size},
                       {"total", std::max(task.size, task.total / task.size * task.size)}};
        auto samples = study.run(task, process_count(task.size) == 5 ? processes : 1,
                                 std::max(task.total, task.size), "retained", params);
        if (!samples) continue;
        study.report("live", params, samples->series(Series::live));
        study.report("huge", params, samples->series(Series::huge));
        const auto report_retained = [&](std::uint32_t cycles, Series series) {
            params["cycles"] = cycles;
            study.report("retained", params, samples->series(series));
        };
        report_retained(1, Series::retained_first);
        if (task.cycles > 2) report_retained((task.cycles + 1) / 2, Series::retained_half);
        if (task.cycles > 1) report_retained(task.cycles, Series::retained);
    }
}

void run_threads_study(const Options& options, Bench& bench) {
    Study study(threads, options, bench);
    Task task = make_task(TaskKind::churn, study);
    task.seconds = options.real("seconds");
    const auto counts = options.integers("threads");
    std::size_t finished = 0;
    for (const auto count : counts) {
        study.progress(finished++, counts.size(),
                       fmt::format("{} thread{}", count, count == 1 ? "" : "s"));
        task.threads = static_cast<std::uint32_t>(count);
        const Json params = {{"threads", count}};
        if (auto samples = study.run(task, 1, 0, "rate", params))
            study.report("rate", params, samples->series(Series::rate));
    }
}

void run_handover_study(const Options& options, Bench& bench) {
    Study study(handover, options, bench);
    Task task = make_task(TaskKind::handover, study);
    task.seconds = options.real("seconds");
    const auto sizes = options.integers("sizes"), counts = options.integers("threads");
    std::size_t finished = 0;
    for (const auto count : counts)
        for (const auto size : sizes) {
            study.progress(finished++, sizes.size() * counts.size(), format_size(size, count));
            task.threads = std::max(2u, static_cast<std::uint32_t>(count) / 2 * 2);
            task.size = static_cast<std::uint64_t>(size);
            const Json params = {{"size", size}, {"threads", task.threads}};
            auto samples = study.run(task, 1, task.size * task.threads * 512, "rate", params);
            if (!samples) continue;
            study.report("rate", params, samples->series(Series::rate));
            study.report("retained", params, samples->series(Series::retained));
        }
}

void run_mixed_study(const Options& options, Bench& bench) {
    constexpr int processes = 3;
    Study study(mixed, options, bench);
    Task task = make_task(TaskKind::mixed, study);
    task.total = static_cast<std::uint64_t>(options.integer("total"));
    const Json params = {{"total", task.total}};
    study.progress(0, 1, "random sizes and lifetimes");
    auto samples = study.run(task, processes, 2 * task.total, "peak_over_live", params);
    if (!samples) return;
    study.report("peak_over_live", params, samples->series(Series::peak_over_live));
    study.report("end_over_live", params, samples->series(Series::end_over_live));
    study.report("operation", params, samples->series(Series::operation));
    study.report("retained", params, samples->series(Series::retained));
}

void run_replay_study(const Options& options, Bench& bench) {
    const std::string& script = options.text("script");
    if (script.empty())
        throw Error("profile.alloc.replay needs --script",
                    "create one: assay-alloc prepare TRACE SCRIPT");
    Study study(replay, options, bench);
    Task task = make_task(TaskKind::replay, study);
    if (script.size() >= sizeof task.script)
        throw Error("the path of the script is too long", "use a shorter path");
    script.copy(task.script, sizeof task.script - 1);
    task.touch = options.flag("no_touch") ? 0 : 1;
    const Json params = {{"trace", options.text("trace")}, {"touched", task.touch != 0}};
    Samples samples;
    const auto repeats = static_cast<std::size_t>(options.integer("repeats"));
    for (std::size_t k = 0; k < repeats; ++k) {
        study.progress(k, repeats, options.text("trace"));
        auto repeat = study.run(task, 1, 0, "time", params);
        if (!repeat) return;
        samples.merge(*repeat);
    }
    task.time_calls = 1;
    auto timed_calls = study.run(task, 1, 0, "malloc", params);
    if (!timed_calls) return;
    samples.merge(*timed_calls);
    for (const MetricSeries& entry :
         {MetricSeries{"time", Series::in_calls}, MetricSeries{"touch", Series::in_touch},
          MetricSeries{"wall", Series::wall}, MetricSeries{"calls", Series::calls},
          MetricSeries{"faults", Series::faults}, MetricSeries{"peak", Series::peak},
          MetricSeries{"peak_live", Series::peak_live},
          MetricSeries{"peak_over_live", Series::peak_over_live}})
        study.report(entry.metric, params, samples.series(entry.series));
    for (const auto& [metric, call] :
         {std::pair{"malloc", Call::malloc}, std::pair{"realloc", Call::realloc},
          std::pair{"free", Call::free}})
        if (const Summary calls = samples.calls(call); calls.n > 0)
            study.report(metric, params, calls);
}

}  // namespace detail
}  // namespace assay::alloc
