"""Files of others: every dialect gives the same text, and what is something else is refused by its true name."""

from __future__ import annotations

import bz2
import ctypes
import gzip
import lzma
import marshal
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.records.foreign import Wanted, is_plain, open_text, read_text, refuse_other, require_plain, unpack
from assay.records.run import Run

TEXT = "# hosts of the rack\nnöde1\nnode2\n"
PPROF = b"\n\4\x08\1\x10\2\x12\4\n\2\1\2"  # of proto/profile.proto: sample_type, sample
HOSTS = Wanted("a host file", "write a host a line")


def zstd(content: bytes) -> bytes:
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compress.restype = ctypes.c_size_t
    target = ctypes.create_string_buffer(len(content) + 1024)
    size = library.ZSTD_compress(
        target, ctypes.c_size_t(len(target)), content, ctypes.c_size_t(len(content)), 1
    )
    return target.raw[:size]


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd,
}


def written(folder: Path, content: bytes) -> Path:
    path = folder / "file"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        TEXT.encode(),
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.encode("latin-1"),
        TEXT.encode("utf-16"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        b"\0\0\xfe\xff" + TEXT.encode("utf-32-be"),
        *(pack(TEXT.encode()) for pack in PACKERS.values()),
        *(pack(TEXT[:9].encode()) + pack(TEXT[9:].encode()) for pack in PACKERS.values()),
        gzip.compress(TEXT.encode("utf-16")),
    ],
    ids=lambda _: (
        "content"
    ),  # packed bytes have the time in them, and each process must collect the same names
)
def test_every_dialect_gives_the_same_text(tmp_path: Path, content: bytes) -> None:
    assert read_text(written(tmp_path, content), HOSTS) == TEXT


@pytest.mark.parametrize("name", PACKERS)
def test_a_long_packed_text_is_read_whole(tmp_path: Path, name: str) -> None:
    text = "".join(f"line {number * 7919 % 10007}\n" for number in range(60_000))
    assert read_text(written(tmp_path, PACKERS[name](text.encode())), HOSTS) == text


@pytest.mark.parametrize("name", PACKERS)
def test_packed_data_that_are_cut_short_or_damaged_are_refused(tmp_path: Path, name: str) -> None:
    packed = PACKERS[name](bytes(number * 31 % 251 + 1 for number in range(5000)))
    with pytest.raises(UserError, match=f"the {name} data end in the middle: it is cut short"):
        read_text(written(tmp_path, packed[:-9]), HOSTS)
    damaged = packed[:6] + bytes(byte ^ 0xFF for byte in packed[6:40]) + packed[40:]
    with pytest.raises(UserError, match=f"the {name} data (are damaged|end in the middle)"):
        read_text(written(tmp_path, damaged), HOSTS)


def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "ALWAYS_ALLOWED", 1 << 20)
    path = written(tmp_path, bz2.compress(b"\n" * (8 << 20)))
    with pytest.raises(UserError, match="unpacks to more than 1 MiB"), open_text(path) as file:
        while file.read(1 << 16):
            pass


def test_a_text_of_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="larger than 1 MiB, so not a host file"):
        read_text(written(tmp_path, b"n1\n" * (1 << 19)), HOSTS, limit=1 << 20)


@pytest.mark.parametrize(
    "content, name",
    [
        (b"\x7fELF\2\1\1", "an ELF program or library, not a host file; fix: write a host a line"),
        (b"\x89PNG\r\n\x1a\n123", "a PNG picture"),
        (pickle.dumps({"hosts": ["n1"]}), "a pickle of Python"),
        (b"PK\3\4....", "a zip archive"),
        (b"a" * 257 + b"ustar\0", "a tar archive"),
        (gzip.compress(b"a" * 257 + b"ustar\0"), "a tar archive"),
        (gzip.compress(gzip.compress(b"n1")), "compressed twice"),
        (b"\x04\x22\x4d\x18....", "compressed by lz4; fix: unpack it: unlz4"),
        (b"n1\0n2", "not a text file, so not a host file"),
        (b"<!doctype html><html>", "a page of HTML, not a host file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
        (b'#\nSwitch\t36 "S-0002c90300001000"\t\t# "leaf"', "the output of ibnetdiscover, not a host file"),
        (b"# Running version: x\nSTART_NODES\n", "an ibdiagnet db_csv"),
        (b'<?xml version="1.0"?>\n<Report date="x">', "an opareport"),
        (b'<?xml version="1.0"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology>', "an hwloc XML"),
        (b'<?xml version="1.0"?>\n<platform version="4.1">', "a SimGrid platform"),
        (b"v 10500 3\nX ./prog\n", "a heaptrack trace"),
        (b"SwitchName=s0 Nodes=n[0-3]\n", "Slurm's topology.conf"),
        (b"IOR START\n", "a script of IOR"),
        (
            b"SW     4  1 0x0000000000200002 4x NDR - CA     5  1 0x0000000000100003 ( 'l' - 'n' )\n",
            "ibnetdiscover -p",
        ),
        (b'Ca\t : 0x0000000000100002 ports 1 devid 0x1021 vendid 0x2c9 "n1 mlx5_0"\n', "ibnetdiscover -l"),
        (b'0x0002 "sw"   4   18[  ] ==(     Down/ Polling)==>    [  ] "" ( )\n', "the output of iblinkinfo"),
        (
            b"sminfo: sm lid 1 sm guid 0x100001, activity count 5 priority 14 state 3\n",
            "the output of sminfo",
        ),
        (
            b'Switch\t: 0xe41d2d03003bfb80 ports 36 "MF0;sw1:SX6036/U1" base port 0 lid 12\n',
            "ibhosts or ibswitches",
        ),
        (b"# PortRcvErrorDetails counters: Lid 2052 port 1\nPortSelect:....1\n", "the output of perfquery"),
        (b"Infiniband device 'mlx5_0' port 1 status:\n\tstate: 4\n", "the output of ibstatus"),
        (b"Multicast mlids [0xc000-0xc01f] of switch Lid 4\n", "multicast forwarding tables"),
        (b"Switch 0x0000000000200002\nLID    : Out Port(s)\n", "multicast forwarding tables"),
        (b"Switch: guid 0x0000000000200002\n0x0001: 01 ff\n", "OpenSM's opensm-lid-matrix.dump"),
        (b'# names\n0x0000000000200002 "leaf1"\n', "a map of node names"),
        (b"Links Summary\n\n4 Links in Fabric:\n", "the text of opareport"),
        (b"100g 0x0011750101000001   1 FI   n1 hfi1_0\n", "the text of opareport"),
        (b'# Net status - Wed Jun 17\n\nSwitch 8 "s1"      nodeguid 200000\n', "a dump of ibsim"),
        (b"0x0011750101700001;1;FI;n1 hfi1_0;0x0001\n", "the output of opaextractlids"),
        (b"Machine (31GB total)\n  Package L#0\n", "the text of lstopo"),
        (b"available: 2 nodes (0-1)\nnode 0 cpus: 0 1\n", "the output of numactl -H"),
        (b"PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\nall* up 1 n1\n", "the output of sinfo"),
        (b'{"version": 1, "execution": {"R_lite": []}}\n', "a resource set of Flux"),
        (b"# OSU MPI Bandwidth Test v7.3\n", "the output of an OSU benchmark"),
        (
            b"# OSU MPI Multiple Bandwidth / Message Rate Test v5.7\n1 6.3 23\n",
            "the output of an OSU benchmark",
        ),
        (b"# OSU MPI_Put latency Test\n# Window creation: x\n", "the output of an OSU benchmark"),
        (b"# OSU MPI Bandwidth Test (Version 2.2)\n1 0.4\n", "the output of an OSU benchmark"),
        (b"# nThread 1 nGpus 8 minBytes 8 maxBytes 8 step: 2(factor)\n", "the output of nccl-tests"),
        (b"Connecting to host 10.0.0.1, port 5201\n", "the text of iperf"),
        (b"IOR-4.0.0: MPI Coordinated Test of Parallel I/O\n", "the output of IOR"),
        (b"access,bw(MiB/s),IOPS,Latency,block(KiB)\nwrite,1,2,3,4\n", "the output of IOR"),
        (b'{\n  "Version": "4.0.0",\n  "Command line": "ior -w",\n  "tests": []\n}\n', "the JSON of IOR"),
        (b"=====  Performance Results  =====\nTotal number of ranks: 4\n", "the output of h5bench"),
        (b"metric, value, unit\noperation, write,\nranks, 16,\n", "the output of h5bench"),
        (b"IO500 version io500-isc22 (standard)\n", "the output of IO500"),
        (b"j: (g=0): rw=read, bs=(R) 4096B-4096B\nfio-3.28\n", "the text of fio"),
        (b'{"fio version": "fio-3.36", "jobs": []}\n', "the JSON of fio"),
        (b'note: the queue depth is capped\n{\n  "fio version" : "fio-3.36"\n}\n', "the JSON of fio"),
        (b'{\n"test_info": {\n"test": "Write_BW",\n"Device": "mlx5_0"}}\n', "the output of perftest"),
        (b"{\ntest_info: {\ntest: Send_BW_Test,\nDual_port: OFF,\n},\n", "the output of perftest"),
        (
            b'{"event":"start","data":{"connected":[],"version":"iperf 3.17"}}\n{"event":"end"}\n',
            "the JSON of iperf3",
        ),
        (
            b'WARNING: an adapter is not used.\nNCCL version 2.26\n{"identifier": "nccl-tests output"}\n',
            "the output of nccl-tests",
        ),
        (b"nvbandwidth Version: v0.6\nBuilt from Git version:\n", "the output of nvbandwidth"),
        (
            b"[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\nDevice: 0, NVIDIA X\n",
            "the output of p2pBandwidthLatencyTest",
        ),
        (
            b"+---------+---------+---------+\n|         |         |  overhead (usec)  | bandwidth (MB/s) |\n",
            "the output of ucx_perftest",
        ),
        (b"3;fio-3.28;job;0;0;4096;10;2;30\n", "the terse output of fio"),
        (
            b"OPERATION   RESULT TYPE         FIRST DONE   LAST DONE\n=========== ====\n",
            "the output of elbencho",
        ),
        (b"cpu_index_using: logical\nrank: 0: { host: 1; cpu: {0-3} } : app 0\n", "a resource file of jsrun"),
        (b"rank 0 : { host: 2; cpu:  {7}; gpu: {1} }\n", "a resource file of jsrun"),
        (b"Host n1 n2\n  # inner\n  HostName 10.0.0.1\n", "a configuration of ssh"),
        (b"Topology\n<br>\nSwitch\t24 &quot;S-00&quot;\n<br>\n", "a page of HTML"),
        (b"HPLinpack benchmark input file\nInnovative Computing Laboratory\n", "an input file of HPL"),
        (b"HPCG-Benchmark version=3.1\nRelease date=x\n", "the output of HPCG"),
        (b"             node0    node1\nnuma_hit     765        921\n", "the output of numastat"),
        (b"3.41\0\0\0\0" + (6567223).to_bytes(8, "little"), "a log of Darshan"),
        (b"desc: (none)\ncmd: ./a\ntime_unit: i\n", "a profile of massif"),
        (b"-----\nCommand:            ./a\nms_print arguments: massif.out.7\n", "the text of ms_print"),
        (b'reading file "a.zst"\n\nPEAK MEMORY CONSUMERS\n1B peak\n', "the text of heaptrack_print"),
        (b"total runtime: 1s.\npeak heap memory consumption: 2K\n", "the text of heaptrack_print"),
        (b'{"dhatFileVersion":2\n,"mode":"heap"', "a profile of DHAT"),
        (b'{"total_num_allocations": 1, "allocation_size_histogram": []}', "the statistics of memray"),
        (b"=====\n==7==ERROR: LeakSanitizer: detected memory leaks\n", "a report of a sanitizer"),
        (b"= Start\n@ ./a:[0x4] + 0x6 0x3\n", "a log of mtrace"),
        (b"00400000 default file=/a b mapped=5 N0=5 kernelpagesize_kB=4\n", "/proc/PID/numa_maps"),
        (b"00400000-0048a000 r-xp 00000000 fd:03 960637   /a\nSize: 1 kB\n", "/proc/PID/maps or smaps"),
        (b"Fabric 0:0 Information:\nSM: s1 Guid: 0x1 State: Master\n", "the output of opafabricinfo"),
        (b'{"run": {"tool": "malt", "formatVersion": 1.3}}', "a profile of MALT"),
        (PPROF, "a profile of pprof"),
        (gzip.compress(PPROF), "a profile of pprof, not a host file"),
        (b"2\0002\5count", "a profile of pprof"),
        (b"\0" * 8 + b"\3" + b"\0" * 15 + b"\1", "a processor profile of gperftools"),
        (b"NVIDIA Tegra Profiler Report 2024@1@1\n\x0b", "a report of Nsight Systems"),
        (b"NVR\0\4\0\0\0", "a report of Nsight Compute"),
        (
            b"SQLite format 3\0\0\0\0CREATE TABLE StringIds (id INTEGER)",
            "an SQLite export of Nsight Systems, not a host file",
        ),
        (b"SQLite format 3\0\0\0\0CREATE TABLE hosts (name)", "an SQLite database"),
        (b"OTF2\0\2\3", "a trace of OTF2"),
        (b"HPCTOOLKITmeta\4\0", "a database of HPCToolkit"),
        (b"HPCRUN-trace______", "a measurement of HPCToolkit"),
        (b"CDF\5\0\0\0\0", "a netCDF file"),
        (b"anchor.xml".ljust(257, b"\0") + b"ustar\0", "a profile of Cube (Score-P)"),
        (marshal.dumps({("a.py", 1, "f"): (1, 1, 0.5, 0.5, {})}), "a profile of Python's cProfile"),
        (b"main;solve;dgemm 120\nmain;read 3\n", "folded stacks"),
        (b"main 3\nmain;std::vector<a, b>::at_[k] 1.5\n", "folded stacks"),
        (
            b'# Running version: "IBDIAGNET 2.9.0"\nMF0;sw1:X/U1, Mellanox, Quantum, 0x98039b0300867890, LID 3\n'
            b"     #    : IB# : Sta  : PhysSta : MTU  : LWA\n",
            "ibdiagnet's net_dump",
        ),
        (
            b'<?xml version="1.0"?>\n<platform version="4.1">\n<actor host="n1" function="f"/>\n',
            "a SimGrid deployment",
        ),
        (b'<platform version="3"><process host="n1" function="f"/>\n', "a SimGrid deployment"),
        (b'<platform version="4.1"><host id="n1" speed="1Gf"/><actor host="n1"/>\n', "a SimGrid platform"),
        (b'[{"name": "a", "args": {"x": 1}, "ph": "B", "ts": 1}]', "a trace of Chrome's format"),
        (b"#Paraver (27/11/2026 at 02:11):9_ns:1(2):1:1(1:1)\n1:1:1:1:1:0:9:1\n", "a trace of Paraver"),
        (b"LEVEL CPU SIZE 2\nCPU 1.1\n", "labels of Paraver"),
        (b"7|run|all|COMPLETED|0:0\n", "the output of sacct"),
        (b"2ELIFREP\0\0", "a recording of perf"),
        (b"version: 1\ncreator: xdebug 3\nevents: Time\n", "a profile of callgrind"),
        (b'{"jobs": [],\n "meta": {"plugins": {}, "Slurm": {"version": {}}}}', "the JSON of Slurm"),
        (b"JobID|JobName|State|\n7|run|COMPLETED|\n", "the output of sacct"),
        (b"User|NNodes|State|\nroot|2|FAILED|\n", "the output of sacct"),
        (b"JobID,JobName,NodeList\n7,run,n1\n", "the output of sacct"),
        (b"  JOBID PARTITION     NAME     USER ST\n    7       all      run     root  R\n", "of squeue"),
        (b"NodeName=n1 Arch=x86_64\n   CPUAlloc=0 CPUTot=8\n", "the output of scontrol show node"),
        (b"NodeName=n[1-4] CPUs=8\n", "Slurm's slurm.conf"),
        (b"\n=====NVSMI LOG=====\n\nDriver Version : 1\n", "the output of nvidia-smi"),
        (b"GPU 0: NVIDIA X (UUID: GPU-0a1b)\n", "the output of nvidia-smi"),
        (b"index, name, utilization.gpu [%]\n0, X, 3 %\n", "the output of nvidia-smi"),
        (b"0000:3b:00.0 Infiniband controller: X\n", "the output of lspci"),
        (b"3b:00.0 0207: 15b3:101b\n", "the output of lspci"),
        (b"Last login: today\nCA 'mlx5_0'\n\tCA type: X\n", "the output of ibstat"),
        (b"==4711== NVPROF is profiling process 4711\n", "the output of nvprof"),
        (b"0x0001 001 : (Channel Adapter portguid 0x1: 'n1')\n", "entries of a forwarding table"),
        (b" Performance counter stats for './a':\n", "the output of perf stat"),
        (b'digraph "g" {\n a -> b\n}\n', "a graph of Graphviz"),
        (b"# Port info: Lid 4 port 1\nMkey:....0x0\n", "the output of smpquery"),
        (b"# Switch info: DR path slid 0; dlid 0; 0,1\n", "the output of smpquery"),
        (b"# Port counters: Lid 4 port 1 (CapMask: 0x5A00)\n", "the output of perfquery"),
        (b"#\n# Memory domain: self\n#     Component: self\n", "the output of ucx_info"),
        (b"# Library version: 1.17.0\n# Library path: /l/libucs.so.0\n", "the output of ucx_info"),
        (b"# gpu    pwr  gtemp\n# Idx      W      C\n    0     70     40\n", "the output of nvidia-smi"),
        (
            b"#    Intel(R) MPI Benchmarks 2019 Update 6, MPI-1 part\n",
            "the output of the Intel MPI Benchmarks",
        ),
        (b"#   Intel (R) MPI Benchmark Suite V3.2, MPI-1 part\n", "the output of the Intel MPI Benchmarks"),
        (b"##IPMv2.0.6########\n#\n# command : ./a\n", "a report of IPM"),
        (b"SCOREP_ENABLE_TRACING=true\n", "settings of Score-P"),
    ],
    ids=lambda value: value if isinstance(value, str) else "content",
)
def test_another_file_is_refused_by_its_name(tmp_path: Path, content: bytes, name: str) -> None:
    with pytest.raises(UserError) as refused:
        read_text(written(tmp_path, content), HOSTS)
    assert name in str(refused.value) and refused.value.fix


@pytest.mark.parametrize(
    "comment",
    [
        "# OSU cluster, test nodes",
        "# OSU MPI nodes, for the test",
        "# OSU MPI partition, Test nodes first",
        "# IO500 nodes",
        "# iperf: n[0-3] listen",
        "# Intel(R) MPI Benchmarks run here",
        "##IPMI is at n[0-3]-ipmi",
        "# Node info: two racks, 18 nodes each",
        "# Switch info: leaves first",
        "# Port counters: cleared on Monday",
        "# Memory domain: rack A",
        "# Library version: 2",
        "# gpu pwr limit: 300 W",
        "# dmidecode 3.3 has the serial numbers",
        "# darshan log version: see the wiki",
        "# callgrind format of these nodes: off",
    ],
)
def test_a_comment_about_a_tool_is_not_its_output(tmp_path: Path, comment: str) -> None:
    assert read_text(written(tmp_path, f"{comment}\nn[0-3]\n".encode()), HOSTS).endswith("n[0-3]\n")


@pytest.mark.parametrize(
    "text",
    [
        "n1 16\nn2 16\n",
        "PAR1\nPAR2\n",
        "memray slots=4\n",
        "# JobID 7, folded: a;b 3\nn[1-4]\n",
        "# GPU 0 is slow\nn1 # 3b:00.0\n",
        "2001:db8::1\n10.0.0.1:2\n",
        "[node]\nstate = 'free'\n",
        "graph = 'G {'\n",
        "rank: 0\n",
        "Host\nn1\n",
        "Host      OS  2p/0K 2p/16K\n              Ctxsw  ctxsw\n",
        "nvbandwidth\nelbencho slots=2\n",
        "# PING n1 for all\nJobID = 3\n",
    ],
)
def test_what_only_resembles_another_kind_is_read(tmp_path: Path, text: str) -> None:
    assert read_text(written(tmp_path, text.encode()), HOSTS) == text


def test_a_file_of_the_wanted_kind_is_read(tmp_path: Path) -> None:
    text = "SwitchName=s0 Nodes=n[0-3]\n"
    wanted = Wanted("Slurm's topology", "give topology.conf", ("topology.conf",))
    assert read_text(written(tmp_path, text.encode()), wanted) == text


def test_pipes_folders_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"):
        open_text(tmp_path)
    with pytest.raises(UserError, match="is a device or a pipe"):
        open_text(Path("/dev/zero"))
    with pytest.raises(UserError, match="cannot be read: No such file"):
        open_text(tmp_path / "none")


def test_a_file_in_place_of_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"file \(a profile of pprof\) is not a run directory"):
        Run.load(written(tmp_path, gzip.compress(PPROF)))
    with pytest.raises(UserError, match="none is not a run directory"):
        Run.load(tmp_path / "none")


def test_an_xml_file_is_decoded_as_it_declares(tmp_path: Path) -> None:
    declaration = '<?xml version="1.0" encoding="{}"?>\n<platform id="n€de"/>\n'
    wanted = Wanted("a platform", "give one", ("simgrid",))
    for name in ("iso-8859-15", "utf-16"):
        text = read_text(written(tmp_path, declaration.format(name).encode(name)), wanted)
        assert text.strip() == '<platform id="n€de"/>' and text.count("\n") == 2
    with pytest.raises(UserError, match="the encoding 'klingon' is not known"):
        read_text(written(tmp_path, declaration.format("klingon").encode()), wanted)


NET = '#\n# Topology file: generated\nSwitch\t36 "S-0002c90300001000"\t\t# "leaf1"\n'
FABRIC = Wanted("a topology", "give one", ("ibnetdiscover",))


@pytest.mark.parametrize(
    ("quoted", "text"),
    [
        ("> n1\n> n2\n", "n1\nn2\n"),
        (">n1\r\n>\r\n>n2", "n1\r\n\r\nn2"),
        ("> > n1\n>> n2\n\n", "n1\nn2\n\n"),
        ("On Monday she wrote:\n\n> n1\n>  n2\n", "\n\nn1\n n2\n"),
    ],
)
def test_a_quoted_text_is_read_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], quoted: str, text: str
) -> None:
    path = written(tmp_path, quoted.encode())
    assert read_text(path, HOSTS) == text
    assert "quoted as in a mail" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["> n1\nn2\n", "n1\n> n2\n", "n1\nn2:\n> n3\n", "n1 > n2\n", "a:\n", ">\nn1\n", "\n"]
)
def test_a_mark_before_some_lines_is_no_quote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert read_text(written(tmp_path, text.encode()), HOSTS) == text
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "kernel", ["[  123.456789] mlx5_core: up\n", "<6>[    0.000001] x\n[    0.000002] y\n\n"]
)
def test_lines_of_the_kernel_do_not_hide_what_follows(tmp_path: Path, kernel: str) -> None:
    path = written(tmp_path, f"{kernel}# OSU MPI Bandwidth Test v7.3\n# Size  Bandwidth (MB/s)\n".encode())
    with pytest.raises(UserError, match="the output of an OSU benchmark, not a host file"):
        read_text(path, HOSTS)
    with pytest.raises(UserError, match="a log of the kernel, not a host file"):
        read_text(written(tmp_path, kernel.encode()), HOSTS)


def test_a_greeting_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, b"Welcome to the cluster\n\nUse is monitored.\n" + NET.encode())
    assert read_text(path, FABRIC) == "\n\n\n" + NET
    assert read_text(path, FABRIC) == "\n\n\n" + NET
    assert capsys.readouterr().err == (
        f"note: {path}: 2 lines before the output of ibnetdiscover left out: 'Welcome to the cluster'\n"
    )


@pytest.mark.parametrize(
    "greeting",
    [
        "Filesystem  Size  Used\n/dev/sda1  9G  1G\n",
        "JOBID PARTITION NAME\n",
        "GPU 0: X (UUID: GPU-1)\n",
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\nall* up 1 n1\n",
        "| NVIDIA-SMI 550.54  Driver Version: 550.54 |\n",
        "available: 2 nodes (0-1)\n",
        "bash: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8): No such file\n",
    ],
)
def test_a_greeting_may_hold_the_output_of_commands(tmp_path: Path, greeting: str) -> None:
    text = read_text(written(tmp_path, (greeting + NET).encode()), FABRIC)
    assert text == "\n" * greeting.count("\n") + NET


@pytest.mark.parametrize(
    "line, problem",
    [
        (
            "src/query_smp.c:1; umad (DR path slid 0; dlid 0; 0,1,7 Attr 0x11:0) bad status 110; timed out",
            r":1: the node at the direct route 0,1,7 did not answer: .*may be incomplete",
        ),
        ("ibwarn: [77] mad_rpc: _do_madrpc failed", ":1: an error message: .*may be incomplete"),
    ],
)
def test_an_error_message_before_the_output_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        read_text(written(tmp_path, f"{line}\n{NET}".encode()), FABRIC)


def test_what_only_assay_reads_is_not_passed_on(tmp_path: Path) -> None:
    assert is_plain(written(tmp_path, TEXT.encode()))
    require_plain(tmp_path / "file", HOSTS)
    assert is_plain(written(tmp_path, b'<?xml version="1.0" encoding="UTF-8"?>\n<platform/>\n'))
    with pytest.raises(UserError, match="compressed by xz; fix: unpack it: unxz"):
        require_plain(written(tmp_path, lzma.compress(TEXT.encode())), HOSTS)
    with pytest.raises(UserError, match="not plain UTF-8"):
        require_plain(written(tmp_path, TEXT.encode("utf-16")), HOSTS)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_a_file_for_a_reader_of_bytes_is_named_in_any_encoding(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes("desc: (none)\ncmd: ./\u00e4\ntime_unit: i\n".encode(encoding))
    with pytest.raises(UserError, match="a profile of massif, not a trace"):
        refuse_other(path, Wanted("a trace", ""))
