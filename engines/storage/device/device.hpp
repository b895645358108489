// What a node's own storage gives: a folder, a file or /dev/dax*, over threads and transfer sizes,
// sequential and random, by calls, past the page cache and through a mapping. No MPI. By hand:
//
//     assay-probe run storage.device --path /dev/shm --threads 1,2,4 --sizes 4KiB,32KiB,1MiB
#pragma once

#include <array>

#include "core/registry.hpp"

namespace assay::storage {

namespace detail {
void run_device(const Options&, Bench&);

inline constexpr std::array device_parameters = {
    Parameter{"path", Kind::text, "", "",
              "a folder, in which a file is made and removed; a file; or a device of memory"},
    Parameter{"threads", Kind::integers, "", "",
              "numbers of threads; 1, 2, 4 ... to all cores unless given", 1, 4096},
    Parameter{"sizes", Kind::integers, "B", "4KiB,32KiB,256KiB,1MiB,4MiB",
              "of a transfer, multiples of 4 KiB", 4096, 1 << 30},
    Parameter{"op", Kind::text, "", "write,read", "write, read or both"},
    Parameter{"pattern", Kind::text, "", "sequential,random",
              "sequential, random or both, each thread in a part of its own"},
    Parameter{"method", Kind::text, "", "call,direct,mmap,stream",
              "call: pread and pwrite; direct: the same past the page cache; mmap: copies through "
              "a mapping; stream: "
              "writes through a mapping with stores that pass the caches by"},
    Parameter{"bytes", Kind::integer, "B", "256MiB", "of the file or device to work on", 65536,
              1e15},
    Parameter{"budget", Kind::real, "s", "0.2", "for each point", 0.01, 3600},
    Parameter{"repeats", Kind::integer, "", "3", "of each point", 1, 1e6},
    Parameter{"overwrite", Kind::flag, "", "",
              "a file that is there, or a device: what it holds is lost"},
};
inline constexpr std::array device_metrics = {
    Metric{"bandwidth", "B/s", Better::higher,
           "bytes of all threads over the time of the longest; each repeat a sample"},
    Metric{"rate", "1/s", Better::higher, "transfers of all threads over the time of the longest"},
    Metric{"latency", "s", Better::lower, "of one transfer"},
    Metric{"wrong", "1", Better::lower,
           "transfers that did not hold what was written there, by the first word of every page"},
};
}  // namespace detail

inline constexpr Measurement device{"storage.device",
                                    Scope::node,
                                    "Bandwidth of a node's own storage over threads and transfer "
                                    "sizes: file system, NVMe or persistent memory.",
                                    detail::device_parameters,
                                    detail::device_metrics,
                                    runs_anywhere,
                                    detail::run_device};

}  // namespace assay::storage
