// What held this host's own processes and packets back while something ran, by the kernel's
// counters: a quota of a control group on processors, full socket buffers, fragments that were not
// reassembled, and the queues of its interfaces (drops, and shapers that made packets wait). A rate
// that these explain is no fault of the network.
//
// The counters are of the network namespace and of the process's control groups, so they contain
// what other programs did meanwhile: they are upper bounds.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/record.hpp"

namespace assay {

// Counters by name: "udp.receive_buffer_errors", "cpu.throttled_periods",
// "queue.eth0.tbf.dropped" ...
using Counters = std::map<std::string, std::uint64_t>;

// UDP and IP of this network namespace (/proc/net/snmp, snmp6).
Counters read_protocol_counters();
// These, the control groups of this process, and the queues of the interfaces.
Counters read_host_counters();

// Whether a counter grows when all is well: alone it says nothing.
bool is_harmless(const std::string& counter);
// The counters that grew, by how much.
Counters growth(const Counters& before, const Counters& after);

// The facts about this host's limits: the growth of its counters ("grown.NAME"), the quota of its
// control groups ("cpu.quota", in processors; "cpu.period", the length of its time slices in s) and
// the rates of its shapers ("queue.eth0.tbf.rate", B/s). Empty if nothing was held back.
Json limit_facts(const Counters& growth);

}  // namespace assay
