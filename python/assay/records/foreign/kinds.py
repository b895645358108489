"""What a text is: a table of kinds, each recognised by a line near the begin. What is no text is in ``binary``.

The table is for refusals: a reader that gets another file says what that file is. It holds what people of this field
have at hand and may give by mistake.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Kind(NamedTuple):
    """``name`` in messages. ``pattern``: searched in the first part of a text, line by line. ``first``: a line that it
    may begin with; what is before that belongs to no such file. None: not looked for."""

    key: str
    name: str
    pattern: re.Pattern[str]
    first: re.Pattern[str] | None = None


def _lines(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)


def _json(key: str) -> re.Pattern[str]:
    """An object with this key; keys before it may hold anything."""
    return re.compile(rf'\A\s*\{{[^\0]*"{key}"\s*:')


def _named(name: str, pattern: str) -> Kind:
    """A kind that nothing of Assay reads."""
    return Kind(name, name, _lines(pattern))


def _xml(name: str, tags: str) -> Kind:
    return _named(name, rf"^[ \t]*(<\?xml\b[^>\n]{{0,200}}>[ \t]*)?<(!DOCTYPE[ \t]+)?({tags})\b")


KERNEL_LOG = "a log of the kernel"
_XML = _lines(r"^[ \t]*<")
READ = (
    Kind("lfs", "a pointer of Git LFS", _lines(r"\Aversion https://git-lfs")),
    Kind(
        "html",
        "a page of HTML",
        re.compile(r"\A\s*<(!DOCTYPE\s+html|html)\b|^<br ?/?>[ \t\r]*$", re.IGNORECASE | re.MULTILINE),
    ),
    Kind(
        "ibnetdiscover",
        "the output of ibnetdiscover",
        _lines(r'^[ \t]*(Switch|Ca|Rt)\s*[0-9]+ ?"[SHR]-'),
        _lines(
            r"^[ \t]*(#|(vendid|devid|sysimgguid|switchguid|caguid|rtguid)=|(Switch|Ca|Rt)[\s0-9]|Chassis|Non-Chassis)"
        ),
    ),
    Kind("subnet.lst", "OpenSM's opensm-subnet.lst", _lines(r"^\{ (CA|SW|R[Tt])"), _lines(r"^(#|\{ )")),
    Kind("db_csv", "an ibdiagnet db_csv", _lines(r"^START_[A-Z_0-9]+[ \t\r]*$"), _lines(r"^(#|START_)")),
    Kind(
        "lfts",
        "forwarding tables (dump_fts, ibroute, opensm-lfts.dump)",
        _lines(r"^Unicast lids \["),
        _lines(r"^(#|Unicast lids)"),
    ),
    Kind(
        "fdbs",
        "forwarding tables (opensm.fdbs)",
        _lines(r"^\w*dump_ucast_routes: Switch 0x"),
        _lines(r"^(#|\w*dump_ucast_routes: )"),
    ),
    Kind("opareport", "an opareport", _lines(r"^[ \t]*<(Report|Snapshot|Topology)\b"), _XML),
    Kind("hwloc", "an hwloc XML", _lines(r"^[ \t]*<topology\b|^[ \t]*<!DOCTYPE topology"), _XML),
    Kind("simgrid", "a SimGrid platform", _lines(r"^[ \t]*<platform\b|^[ \t]*<!DOCTYPE platform"), _XML),
    Kind(
        "topology.conf", "Slurm's topology.conf", _lines(r"^[ \t]*(?i:SwitchName|BlockName|RingName)[ \t]*=")
    ),
    Kind("topology.yaml", "Slurm's topology.yaml", _lines(r"^-?[ \t]*topology:[ \t]*\S+[ \t\r]*$")),
    Kind(
        "slurm.conf", "Slurm's slurm.conf", _lines(r"^[ \t]*(?i:ClusterName|SlurmctldHost|NodeName)[ \t]*=")
    ),
    Kind("ior", "a script of IOR", _lines(r"^[ \t]*(?i:IOR START)[ \t\r]*$")),
    Kind("h5bench.json", "a JSON configuration of h5bench", re.compile(r'\A\s*\{[^\0]*"benchmarks"\s*:')),
    Kind(
        "h5bench",
        "settings of h5bench",
        _lines(r"^[ \t]*(MEM_PATTERN|FILE_PATTERN|TO_READ_NUM_PARTICLES|NUM_DIMS|DIM_1)[ \t]*="),
    ),
    Kind("run", "records of Assay", _lines(r'\A\{"type":')),
    Kind("script", "a script", _lines(r"\A#!\s*/")),
)
FABRIC = (
    Kind(
        "ibnetdiscover -p",
        "the output of ibnetdiscover -p",
        _lines(r"^(SW|CA|RT) +[0-9]+ +[0-9]+ 0x[0-9a-f]{16} [0-9?]+x "),
    ),
    Kind(
        "ibnetdiscover -l",
        "the output of ibnetdiscover -l",
        _lines(r"^(Ca|Switch|Router)\t : 0x[0-9a-f]+ ports [0-9]+ devid "),
    ),
    Kind("iblinkinfo", "the output of iblinkinfo", _lines(r"^(CA|Switch): ?\S.*:$|==\( *([0-9]+X |Down/)")),
    Kind(
        "ibhosts",
        "the output of ibhosts or ibswitches",
        _lines(r'^(Ca|Switch|Router)\t: 0x[0-9a-f]+ ports [0-9]+ "'),
    ),
    Kind("ibstat", "the output of ibstat", _lines(r"^CA '\S+'[ \t\r]*$")),
    Kind("ibstatus", "the output of ibstatus", _lines(r"^Infiniband device '\S+' port [0-9]+ status:")),
    Kind("ibv_devinfo", "the output of ibv_devinfo", _lines(r"^hca_id:[ \t]+\S+")),
    Kind("sminfo", "the output of sminfo", _lines(r"^sminfo: sm lid [0-9]+ sm guid 0x")),
    Kind("ibtracert", "the output of ibtracert", _lines(r"^From (ca|switch) \{0x[0-9a-f]+\} portnum ")),
    Kind(
        "ibqueryerrors",
        "the output of ibqueryerrors",
        _lines(r'^Errors for (0x[0-9a-f]+ )?"|^## Summary: [0-9]+ nodes checked'),
    ),
    Kind("saquery", "the output of saquery", _lines(r"^(Node|Path|PortInfo|Link|Switch)\w*Record dump:")),
    Kind(
        "multicast",
        "multicast forwarding tables",
        _lines(r"^Multicast mlids \[|^Switch 0x[0-9a-f]{16}\s*\nLID +: Out Port\(s\)"),
    ),
    Kind(
        "lid-matrix",
        "OpenSM's opensm-lid-matrix.dump",
        _lines(r"^Switch: guid 0x[0-9a-f]{16}[ \t\r]*$"),
    ),
    Kind(
        "node-name-map",
        "a map of node names",
        _lines(r'\A(?:[ \t]*(?:#.*)?\r?\n)*0x[0-9a-fA-F]{1,16}[ \t]+"[^"\n]*"[ \t\r]*$'),
    ),
    Kind(
        "opensm.log",
        "a log of OpenSM",
        _lines(r"^\w{3} [ 0-9]{2} [0-9:]{8} [0-9]{6} \[[0-9A-F]+\] 0x[0-9A-F]{2} ->"),
    ),
    Kind(
        "net_dump",
        "ibdiagnet's net_dump",
        _lines(
            r"^[^\n]* LID [0-9]+[ \t\r]*\n *# +: IB# +: |"
            r"^# Running version +: \"IBDIAGNET [^\n]*\n(?:#[^\n]*\n|[ \t\r]*\n)*[^\n]* LID [0-9]+[ \t\r]*\n|"
            r"^# Running version: \"IBDIAGNET [^\n]*\n[^\n]* LID [0-9]+[ \t\r]*\n"
        ),
    ),
    Kind(
        "ibdiagnet.log",
        "a log of ibdiagnet",
        _lines(r'^Running version *: +"IBDIAGNET [0-9]|^Running command *: +\S*ibdiagnet|^-I- Discovering'),
    ),
    Kind(
        "ibdiagnet",
        "a file of ibdiagnet",
        _lines(
            r'^# Running version *: +"IBDIAGNET [0-9](?![^\0]*^(START_|\{ (CA|SW)|(Switch|Ca|Rt)\b|[^\n]* LID [0-9]+))'
        ),
    ),
    Kind(
        "opareport text",
        "the text of opareport",
        _lines(
            r"^(Links|Node Type|Route|Connection) Summary[ \t\r]*$|^[0-9]+ Links in Fabric:|"
            r"^[0-9.]+g 0x[0-9a-f]{16} +[0-9]+ (FI|SW) "
        ),
    ),
    Kind(
        "opaextract",
        "the output of opaextractlids or opaextractsellinks",
        _lines(r"^(0x[0-9a-f]{16};[0-9]+;(FI|SW);|NodeGUID;PortNum;NodeType;)"),
    ),
    Kind("opafabricinfo", "the output of opafabricinfo", _lines(r"^Fabric [0-9]+:[0-9]+ Information:")),
    Kind("ibsim", "a net file of ibsim", _lines(r'^(Hca|Switch)\s+[0-9]+\s+"[^"\n]*"[ \t\r]*$')),
    Kind("ibsim dump", "a dump of ibsim", _lines(r"^# Net status - |^#[ \t]+Forwarding table [0-9]")),
    Kind("ibdm", "a topology file of ibdm", _lines(r"^[ \t]*\S+ -> \S+ \S+ P[0-9]+(/\S+)?[ \t\r]*$")),
)
MACHINES = (
    Kind(
        "lstopo",
        "the text of lstopo",
        _lines(r"\AMachine \([0-9]+[KMGT]B( total)?\)|^ *(NUMANode|PU) (L#|P#)[0-9]+\b"),
    ),
    Kind("numactl", "the output of numactl -H", _lines(r"^available: [0-9]+ nodes? \(")),
    Kind("numastat", "the output of numastat", _lines(r"^numa_hit +[0-9]")),
    Kind("lscpu", "the output of lscpu", _lines(r"\AArchitecture: +\S+$")),
    Kind("nvidia-smi", "the output of nvidia-smi", _lines(r"^\t(\x1b\[4m)?GPU0\t|^\| NVIDIA-SMI [0-9]")),
    Kind("sinfo", "the output of sinfo", _lines(r"\APARTITION +AVAIL +TIMELIMIT ")),
    Kind("kubectl", "the output of kubectl get nodes", _lines(r"\ANAME +STATUS +ROLES +AGE ")),
    Kind("flux", "the output of flux resource list", _lines(r"\A *STATE +(QUEUE +|PROPERTIES +)?NNODES ")),
    Kind("R", "a resource set of Flux", _json("R_lite")),
)
BENCHMARKS = (
    Kind(
        "osu",
        "the output of an OSU benchmark",
        _lines(
            r"^# (OSU|OMB-Py) (MPI|OpenSHMEM|UPC|[NRx]CCL)\S* .*"
            r"\b([Tt]est[ \t]+(v[0-9]|\(Version )|Test[ \t\r]*$)"
        ),
    ),
    Kind(
        "imb",
        "the output of the Intel MPI Benchmarks",
        _lines(r"^# +Intel ?\(R\) MPI Benchmark(s| Suite) V?[0-9][\w. ]*, \S+ part\b"),
    ),
    Kind(
        "perftest",
        "the output of perftest",
        _lines(
            r"^ *(RDMA_\w+|Send|Atomic_\w+) .*(BW|Latency) Test[ \t\r]*$|^ #bytes +#iterations |"
            r'\A\s*\{\s*"?test_info"?\s*:\s*\{\s*"?test"?\s*:'  # in 2023 without quotes
        ),
    ),
    Kind("linktest", "the output of LinkTest", _lines(r"(?i:^ *linktest version [0-9])")),
    Kind("iperf3", "the JSON of iperf3", re.compile(r'\A\s*\{\s*"start"\s*:[^\0]*"(connected|version)"\s*:')),
    Kind(
        "iperf",
        "the text of iperf",
        _lines(r"^(Connecting to host \S+, port|Server listening on |Client connecting to )"),
    ),
    Kind(
        "iperf3 stream",
        "the JSON of iperf3",
        re.compile(r'\A\s*\{\s*"event"\s*:\s*"start"\s*,\s*"data"\s*:[^\n]*"version"\s*:\s*"iperf'),
    ),
    Kind(
        "nccl-tests",
        "the output of nccl-tests",
        _lines(r'^# nThread [0-9]+ nGpus [0-9]+ minBytes |^\{"identifier": ?"nccl-tests '),
    ),
    Kind("nvbandwidth", "the output of nvbandwidth", _lines(r"^nvbandwidth Version: ")),
    Kind(
        "p2pBandwidthLatencyTest",
        "the output of p2pBandwidthLatencyTest",
        _lines(r"^\[P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test\]"),
    ),
    Kind(
        "ucx_perftest", "the output of ucx_perftest", _lines(r"^ *\|[ |]+\| +(overhead|latency) \(usec\) +\|")
    ),
    Kind(
        "ior output",
        "the output of IOR",
        _lines(r"^IOR-[0-9].*: MPI Coordinated Test of Parallel I/O|^access,bw\(MiB/s\),"),
    ),
    Kind("ior json", "the JSON of IOR", _json("Command line")),
    Kind(
        "h5bench output",
        "the output of h5bench",
        _lines(r"^=+ +Performance Results +=+[ \t\r]*$|\Ametric, value, unit[ \t\r]*$"),
    ),
    Kind("io500", "the output of IO500", _lines(r"^IO500 version |^\[RESULT\] +[\w-]+ +[0-9.]+ \w+/")),
    Kind("mdtest output", "the output of mdtest", _lines(r"^mdtest-\S+ was launched with ")),
    Kind("fio", "the JSON of fio", _lines(r'^[ \t]*\{\s*"fio version"\s*:')),  # its notes come before
    Kind("fio terse", "the terse output of fio", _lines(r"^[2-5];fio-[0-9]+\.[^;\n]*;")),
    Kind("elbencho", "the output of elbencho", _lines(r"^OPERATION +RESULT TYPE +FIRST DONE ")),
    Kind("fio text", "the text of fio", _lines(r"^\S.*: \(g=[0-9]+\): rw=|^fio-[0-9]+\.[0-9.]+[ \t\r]*$")),
    Kind("darshan-parser", "the output of darshan-parser", _lines(r"^# darshan log version: [0-9]")),
    Kind("hpl", "the output of HPL", _lines(r"^HPLinpack [0-9]")),
    Kind("hpl.dat", "an input file of HPL", _lines(r"^HPLinpack benchmark input file")),
    Kind("hpcg", "the output of HPCG", _lines(r"^HPCG-Benchmark[ \t\r]*(version=|$)")),
    Kind("stream", "the output of STREAM", _lines(r"^STREAM version ")),
    Kind(
        "mlc", "the output of Intel's Memory Latency Checker", _lines(r"^Intel\(R\) Memory Latency Checker ")
    ),
)
PROFILERS = (
    Kind("heaptrack", "a heaptrack trace", _lines(r"\Av [0-9a-f]+( [0-9a-f]+)?$")),
    Kind("massif", "a profile of massif", _lines(r"^time_unit: (i|ms|B)$")),
    Kind(
        "callgrind",
        "a profile of callgrind",
        _lines(r"\A# callgrind format[ \t\r]*$|^creator: \w|\Aevents: .*\n(fl|fn|ob)="),
    ),
    Kind("cachegrind", "a profile of cachegrind", _lines(r"\Adesc: I1 cache:")),
    Kind("valgrind", "a report of valgrind", _lines(r"\A==[0-9]+== |^<valgrindoutput>")),
    Kind(
        "heaptrack_print",
        "the text of heaptrack_print",
        _lines(
            r"^(MOST CALLS TO ALLOCATION FUNCTIONS|PEAK MEMORY CONSUMERS)[ \t\r]*$|^peak heap memory consumption: \S"
        ),
    ),
    Kind("ms_print", "the text of ms_print", _lines(r"^ms_print arguments: ")),
    Kind("dhat", "a profile of DHAT", re.compile(r'\A\s*\{\s*"dhatFileVersion"\s*:')),
    Kind("memray stats", "the statistics of memray", _json("allocation_size_histogram")),
    Kind("sanitizer", "a report of a sanitizer", _lines(r"^(==[0-9]+==)?(ERROR|WARNING): \w+Sanitizer: ")),
    Kind("mtrace", "a log of mtrace", _lines(r"\A= Start[ \t\r]*$")),
    Kind("malt", "a profile of MALT", re.compile(r'\A\s*\{[^\0]*"run"\s*:\s*\{[^{}\0]*"formatVersion"\s*:')),
    Kind(
        "numaprof",
        "a profile of NUMAPROF",
        re.compile(r'\A\s*\{\s*"infos"\s*:\s*\{[^\0]*"formatVersion"\s*:'),
    ),
    Kind(
        "speedscope",
        "a profile of speedscope",
        re.compile(r"\A\s*\{[^\0]*speedscope\.app/file-format-schema"),
    ),
    Kind("trace events", "a trace of Chrome's format", _json("traceEvents")),
    Kind("jemalloc", "a heap profile of jemalloc", _lines(r"\Aheap_v2/[0-9]+$")),
    Kind("gperftools", "a heap profile of gperftools", _lines(r"\Aheap profile: +[0-9]+:")),
    Kind(
        "perf script",
        "the output of perf script",
        _lines(r"^\S.* [0-9]+(/[0-9]+)? +(\[[0-9]+\] +)?[0-9]+\.[0-9]+: +([0-9]+ +)?[\w:/-]+: *$"),
    ),
)
JOBS = (  # before READ: scontrol prints nodes nearly as slurm.conf has them
    _named("the output of scontrol show node", r"^NodeName=\S+ [^\0]{0,400}?\bCPUAlloc="),
    _named("the output of scontrol show job", r"^JobId=[0-9]+ "),
    _named("the output of scontrol show partition", r"^PartitionName=\S+[ \t\r]*\n +AllowGroups="),
    _named("the output of scontrol show config", r"^Configuration data as of "),
    _named(
        "the output of sacct",
        r'\A[0-9][\w.+-]{0,60}(\|[^|\n]*){2,}$|\A[^#=\n]*?(?<![^\s|,"])JobID(Raw)?"?[ \t|,;][^=\n]*$',
    ),
    _named(
        "the output of sacct or squeue",
        r"\A(?=.*\b(?i:JobName|State|NodeList|NNodes|User|Partition|Elapsed)\b)\w+(\|\w+)+\|?[ \t\r]*$",
    ),
    _named("the output of squeue", r"^ *JOBID +PARTITION +"),
    _named("the output of sinfo", r"\A(NODELIST +(NODES|STATE|PARTITION|CPUS)|HOSTNAMES +\S+)"),
    _named("the output of pbsnodes", r"^[ \t]+(Mom|ntype|pcpus|power_state) = "),
    _named("the output of qstat", r"^(Job id +Name +User|job-ID +prior +name) "),
    _named("the output of LSF", r"^(HOST_NAME +(STATUS|type)|JOBID +USER +STAT) "),
    _named("the output of qhost", r"^HOSTNAME +ARCH +NCPU "),
    _named(
        "a resource file of jsrun (ERF)", r"^(cpu_index_using: \w+|rank *:? *[0-9]+ *: *\{ *host: *[0-9*])"
    ),
    _named(
        "a configuration of ssh",
        r"^Host[ \t]+(?!OS )\S.*\n([ \t]*\n|[ \t]*#.*\n)*[ \t]+[A-Z][A-Za-z]+[ \t=]+\S",
    ),
)
PARTS = (
    _named("the output of lspci", r"^([0-9a-f]{4,5}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7] [\"A-Z0-9]"),
    _named("the output of lspci", r"\A(-\[[0-9a-f]{4}:|(Slot|Device):\t([0-9a-f]{4}:)?[0-9a-f]{2}:)"),
    _named(
        "the output of nvidia-smi",
        r"^=+NVSMI LOG=+|^GPU [0-9]+: .*\(UUID: (GPU|MIG)-|^# gpu +[a-z ]+[ \t\r]*\n# Idx ",
    ),
    _named(
        "the output of nvidia-smi",
        r"\A[\w., \[\]%]*\b(utilization|memory|temperature|power|clocks|pcie?)\.\w+",
    ),
    _xml("the output of nvidia-smi", "nvidia_smi_log"),
    _named("the output of dcgmi", r"^\| GPU ID +\| Device Information"),
    _named("the output of rocm-smi", r"^=+ ROCm System Management Interface =+|^=+ ROCm SMI"),
    _named("the output of lshw", r"^ +\*-(core|cpu|memory|pci|firmware)\b"),
    _named("the output of dmidecode", r"^# dmidecode [0-9.]+[ \t\r]*$"),
    _named("the output of lsblk", r"^NAME +MAJ:MIN "),
    _named("the output of lsmod", r"^Module +Size +Used by"),
    _named("the output of df", r"^Filesystem +(1K-blocks|Size|Type|Inodes|512-blocks) "),
    _named("the output of ip", r"^[0-9]+: \S+: <[A-Z0-9_,-]+> mtu "),
    _named("the output of ifconfig", r"^\S+: flags=[0-9]+<"),
    _named("the output of ethtool", r"^(Settings for \S+|NIC statistics|Ring parameters for \S+):"),
    _named("the output of ibdev2netdev", r"^\S+ port [0-9]+ ==> \S+ \((Up|Down)\)"),
    _named("the output of ibv_devices", r"^ +device[ \t]+node GUID"),
    _named("the output of rdma link", r"^(link|[0-9]+/[0-9]+:) \S+ state [A-Z]+ physical_state "),
    _named("the output of perfquery", r"^# Port\w*( extended)? [cC]ounters: Lid [0-9]+ port [0-9]"),
    _named("the output of smpquery", r"^# (Node|Port|Switch) info: (Lid [0-9]|DR path )"),
    _named(
        "the output of ucx_info",
        r"^# (Memory domain: \S+[ \t\r]*\n# +Component: |Library version: [0-9.]+[ \t\r]*\n# ?Library path: ?)",
    ),
    _named("the output of fi_info", r"^provider: \S+\r?\n +fabric: "),
    _named(KERNEL_LOG, r"^(<[0-9]+>)?\[ *[0-9]+\.[0-9]{6}\] "),
    _named("/proc/cpuinfo", r"\Aprocessor\t: [0-9]"),
    _named("/proc/meminfo", r"\AMemTotal: +[0-9]+ kB"),
    _named("/proc/PID/numa_maps", r"^[0-9a-f]{8,16} [a-z]\S*( \S+)* kernelpagesize_kB=[0-9]"),
    _named("/proc/PID/maps or smaps", r"\A[0-9a-f]+-[0-9a-f]+ [r-][w-][x-][ps] [0-9a-f]{8,16} "),
)
OTHERS = (
    _named(
        "a SimGrid deployment",
        r"\A\s*(?=<[^\0]*<(actor|process)\b)(?![^\0]*<(host|cluster|cabinet|peer|zone|AS)\b)[^\0]*<platform\b",
    ),
    _named("a trace of Paje (SimGrid)", r"\A%EventDef "),
    _named(
        "folded stacks (flamegraph.pl)",
        r"\A(?!(Ca|Switch|Router)\t: 0x)(#.*\n|[^#;\n][^;\n]* [0-9]+\r?\n)*"
        r"[^#;\n]+(;[^;\n]+)+ [0-9]+(\.[0-9]+)?[ \t\r]*"
        r"(\n[^\n]* [0-9]+(\.[0-9]+)?[ \t\r]*$|\n?\Z)",
    ),
    _xml("a flame graph or another SVG picture", "svg"),
    _named("a graph of Graphviz", r"\A\s*(strict\s+)?(di)?graph\b[^\n{=]*\{"),
    _named("a trace of Paraver", r"\A#Paraver \("),
    _named("labels of Paraver", r"\ADEFAULT_OPTIONS[ \t\r]*$|\ALEVEL (CPU|NODE|TASK|THREAD) SIZE [0-9]+"),
    _named("settings of Score-P", r"^(export )?SCOREP_\w+="),
    _xml("a profile of Cube (Score-P)", "cube"),
    _xml("a database of HPCToolkit", "HPCToolkit(Experiment|Structure)"),
    _named("a profile of TAU", r"\A[0-9]+ templated_functions"),
    _named("a report of mpiP", r"\A@ mpiP"),
    _xml("a profile of IPM", "ipm(_job_profile)?"),
    _named("a report of IPM", r"^##IPM2?v[0-9]"),
    _named("the output of LIKWID", r"^CPU type:\tIntel |^CPU name:\t"),
    _named("the output of perf stat", r"^ Performance counter stats for "),
    _named("the output of perf report", r"^# To display the perf\.data header info|^# Total Lost Samples: "),
    _named("a report of gprof", r"\AFlat profile:"),
    _named("a report of pprof", r"\AFile: .*\n(Build ID: .*\n)?Type: \w+$"),
    _named("the output of strace", r'\A(\[pid +)?[0-9:. \]]*execve\("'),
    _named("the output of nvprof", r"\A==[0-9]+== NVPROF "),
    _named("the output of Nsight Compute", r"\A==PROF== "),
    _named(
        "the output of Nsight Systems",
        r"^Generating SQLite file |^Processing \[.*\] with \[|^ \*\* .* Summary \(\w+\):",
    ),
    Kind(
        "array of trace events",
        "a trace of Chrome's format",
        re.compile(r'\A\s*\[\s*\{[^\0]*?"ph"\s*:\s*"[A-Za-z]"'),
    ),
    Kind("firefox", "a profile of Firefox", _json("preprocessedProfileVersion")),
    Kind("cpuprofile", "a profile of V8", re.compile(r'\A\s*\{\s*"nodes"\s*:\s*\[\s*\{[^\0]*?"callFrame"')),
    Kind("google", "the JSON of Google Benchmark", re.compile(r'\A\s*\{\s*"context"\s*:\s*\{\s*"date"')),
    Kind(
        "slurm json", "the JSON of Slurm", re.compile(r'\A\s*\{(?=[^\0]*"meta"\s*:)[^\0]*"[Ss]lurm"\s*:\s*\{')
    ),
    _named("the output of netperf", r"^(MIGRATED )?(TCP|UDP) (STREAM|REQUEST/RESPONSE) TEST "),
    _named("the output of ping", r"^PING \S+ ?\("),
    _named("the output of sar or iostat", r"\ALinux [0-9]\S+ \(\S+\)"),
    _named("entries of a forwarding table without their switch", r"^0x[0-9a-f]{4} +:? ?[0-9]{3} +: "),
)
FILES = OTHERS + READ + FABRIC + BENCHMARKS + PROFILERS  # without what a login prints, too
TEXT = JOBS + FILES + MACHINES + PARTS


def text_kind(head: str, kinds: tuple[Kind, ...] = TEXT) -> Kind | None:
    """What the first part of a text is: the kind whose line comes first; None for what is not known. Lines of the
    kernel come before the output of a tool on a console."""
    found = [
        (kind.name == KERNEL_LOG, match.start(), kind)
        for kind in kinds
        if (match := kind.pattern.search(head))
    ]
    return min(found, key=lambda item: item[:2])[2] if found else None
