// The measurement storage.device: the bandwidth of a node's own storage (a folder, a file or
// /dev/dax*) over threads and transfer sizes, sequential and random, by system calls, with O_DIRECT
// and through a mapping. No MPI. To run it by hand:
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
              "a folder, in which a temporary file is made; a file; or a /dev/dax device"},
    Parameter{"threads", Kind::integers, "", "",
              "numbers of threads; default: 1, 2, 4 ... up to all cores", 1, 4096},
    Parameter{"sizes", Kind::integers, "B", "4KiB,32KiB,256KiB,1MiB,4MiB",
              "transfer sizes, multiples of 4 KiB", 4096, 1 << 30},
    Parameter{"op", Kind::text, "", "write,read", "write, read or both"},
    Parameter{"pattern", Kind::text, "", "sequential,random",
              "sequential, random or both; each thread uses its own part"},
    Parameter{
        "method", Kind::text, "", "call,direct,mmap,stream",
        "call: pread and pwrite; direct: the same with O_DIRECT; mmap: copies through a mapping; "
        "stream: non-temporal stores through a mapping"},
    Parameter{"bytes", Kind::integer, "B", "256MiB",
              "size of the file, or of the part of the device, to use", 65536, 1e15},
    Parameter{"budget", Kind::real, "s", "0.2", "duration of each point", 0.01, 3600},
    Parameter{"repeats", Kind::integer, "", "3", "repetitions of each point", 1, 1e6},
    Parameter{"overwrite", Kind::flag, "", "",
              "allow writing to an existing file or a device; its data are lost"},
};
inline constexpr std::array device_metrics = {
    Metric{"bandwidth", "B/s", Better::higher,
           "bytes of all threads divided by the longest thread's time; a sample per repeat"},
    Metric{"rate", "1/s", Better::higher,
           "transfers of all threads divided by the longest thread's time"},
    Metric{"latency", "s", Better::lower, "time of one transfer"},
    Metric{"wrong", "1", Better::lower,
           "transfers with wrong data, by the first word of every page"},
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
