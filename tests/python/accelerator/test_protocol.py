"""The model of the store's protocol (tests/models/storage/protocol.pml): spin searches all its states.

A configuration is exhausted without a violation. With a fault planted, or a rule taken out, an assertion is violated,
so the model can see what it is there for. docs/design/storage-protocol.md explains states and configurations."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

MODEL = Path(__file__).parents[2] / "models" / "storage" / "protocol.pml"
DEPTH = 20_000  # steps; the search says if that is too few
SMALL_MIB, LARGE_MIB = 1000, 6000

ONE_NODE = "NODES=1 RECORDS=3 KILLS=1 FAILURES=2 WRITE_FAILURES=1"
TWO_NODES = "NODES=2 RECORDS=2 READS"
TRUNCATION = "NODES=1 RINGS=2 RECORDS=3 TRUNCATIONS=1 SYNCS=0"
DIRECT = "NODES=1 RECORDS=3 SYNCS=2 DIRECT"
DIRECT_TWO_BYTES = f"{DIRECT} BYTES=2"
NAMES = "NODES=1 RECORDS=1 FILES=2 NAMES"
# Nothing fails, so a sync succeeds unless a drain is killed in an fsync meanwhile.
INTERRUPTED = "NODES=1 RECORDS=2 KILLS=1 FAILURES=0"
SMALL = (ONE_NODE, TWO_NODES, TRUNCATION, DIRECT, NAMES, INTERRUPTED)

ONE_NODE_SYNC = "NODES=2 RECORDS=2 SYNCS=0 SELF_SYNCS=1"
# The second of three ranks is on the first node and in no communicator but its own.
OUTSIDE = "NODES=2 RINGS=3 OUTSIDE"
# Two ranks of a node write two bytes, of which another node has written the first one before.
TWO_BYTES = "NODES=2 RINGS=3 BYTES=2 FAILURES=2 SYNCS=0"
THREE_WRITES = f"{TWO_BYTES} RECORDS=3 WRITERS=102 WRITTEN=100"
# A rank that has not opened the file before opens it by itself.
OPENED_ALONE = "NODES=2 RECORDS=2 WRITE_FAILURES=1 OPENS"
TWO_NODES_TRUNCATION = "NODES=2 RECORDS=2 TRUNCATIONS=1 SYNCS=0"
LARGE = (
    DIRECT_TWO_BYTES,
    ONE_NODE_SYNC,
    f"{ONE_NODE_SYNC} NODE_KILLS=1",
    "NODES=2 RECORDS=3 TRUNCATIONS=1 SYNCS=0",
    "NODES=2 RECORDS=3 TRUNCATIONS=1 SYNCS=0 CUT_BY_ALL",
    "NODES=2 RECORDS=2 FAILURES=2",
    OPENED_ALONE,
    "NODES=2 RECORDS=2 ONE_KERNEL",
    "NODES=2 RECORDS=2 BYTES=2 FAILURES=2",
    "NODES=2 RECORDS=2 NODE_KILLS=1",
    "NODES=2 RECORDS=2 KILLS=1",
    "NODES=2 RECORDS=3",
    f"{OUTSIDE} RECORDS=2",
    f"{OUTSIDE} RECORDS=3 WRITERS=102",
    f"{OUTSIDE} RECORDS=3 WRITERS=122",
    THREE_WRITES,
)

SAFE, DURABLE, SYNCED = "left_byte_is_safe", "evicted_byte_is_durable", "synced_byte_is_durable"
CUT, READ, NAME = "cut_byte_stays_away", "read_is_newest", "other_name_stays"
SUCCEEDS = "sync_succeeds"
PROBE = re.escape("!(over)")

FAULTS = [
    ("FAULT_1", ONE_NODE, DURABLE),
    ("FAULT_2", ONE_NODE, SAFE),
    ("FAULT_3", NAMES, DURABLE),
    ("FAULT_4", TWO_NODES, f"{SAFE}|{DURABLE}"),
    ("FAULT_5", TWO_NODES, f"{SAFE}|{DURABLE}"),
    ("FAULT_6", TWO_NODES, SAFE),
    ("FAULT_7", DIRECT, f"{SAFE}|{SYNCED}"),
    ("FAULT_8", TRUNCATION, CUT),
    ("FAULT_9", ONE_NODE, SAFE),
    ("FAULT_10", ONE_NODE, SAFE),
    ("FAULT_11", NAMES, NAME),
    ("FAULT_12", ONE_NODE, SAFE),
    ("FAULT_13", TWO_NODES, READ),
]
RULES = [
    ("RULE_GUARD_DRAINED", TWO_NODES, f"{SAFE}|{DURABLE}"),
    ("RULE_GUARD_LASTS", f"{TWO_NODES} ONE_KERNEL", DURABLE),
    ("RULE_UNRESOLVED", TWO_NODES, SAFE),
    ("RULE_UNRESOLVED_WAIT", ONE_NODE_SYNC, SAFE),
    ("RULE_UNRESOLVED_HOLDS", OPENED_ALONE, READ),
    ("RULE_HAS_ALL_RANKS", f"{OUTSIDE} RECORDS=2", SYNCED),
    ("RULE_BYTES_OF_ALL", f"{OUTSIDE} RECORDS=3 WRITERS=102", SYNCED),
    ("RULE_EVICTED_NEWEST", f"{TWO_BYTES} RECORDS=4 WRITERS=0210 WRITTEN=1100 EVICTOR=1", SAFE),
    ("RULE_MAY_BE_OLD", THREE_WRITES, SAFE),
    ("RULE_REPEATS_COVERED", THREE_WRITES, SAFE),
    ("RULE_REPEATS_UNSETTLED", f"{TWO_NODES} FAILURES=2", SAFE),
    ("RULE_SYNC_COVERS", TWO_NODES, SYNCED),
    ("RULE_ONE_NODE_SYNC", ONE_NODE_SYNC, f"{SAFE}|{SYNCED}"),
    ("RULE_CUT_REPEATS", TRUNCATION, CUT),
    ("RULE_CUT_STAYS", TRUNCATION, CUT),
    ("RULE_CUT_EVERYWHERE", TWO_NODES_TRUNCATION, CUT),
    ("RULE_DEAD_SYNC", "NODES=1 RECORDS=2 KILLS=2 FAILURES=2", SAFE),
    ("RULE_INTERRUPTED_SYNC", INTERRUPTED, SUCCEEDS),
    ("RULE_INTERRUPTED_FAILED", "NODES=1 RECORDS=2 KILLS=1 FAILURES=1", SYNCED),
    ("RULE_TOMBSTONES", TWO_NODES, READ),
    ("RULE_LEDGER", DIRECT_TWO_BYTES, SYNCED),
]


@dataclass
class Search:
    violated: str  # the assertion; "": none
    complete: bool
    text: str


def search(folder: Path, configuration: str, megabytes: int, optimised: bool = False) -> Search:
    """Searches all states of the configuration, or until an assertion is violated."""
    for tool, package in (("spin", "spin"), ("gcc", "gcc")):
        if shutil.which(tool) is None:
            pytest.fail(f"{tool} is missing; fix: apt-get install {package}")
    generate = ["spin", "-a", *(f"-D{name}" for name in configuration.split()), str(MODEL)]
    compile_ = ["gcc", "-O2" if optimised else "-O0", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=512"]
    for command in (generate, [*compile_, f"-DMEMLIM={megabytes}", "-o", "pan", "pan.c"]):
        made = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert made.returncode == 0, f"{' '.join(command)}: {made.stdout}{made.stderr}"
    run = subprocess.run(["./pan", f"-m{DEPTH}"], cwd=folder, capture_output=True, text=True)
    text = run.stdout + run.stderr
    violated = re.search(r"pan:\d+: (.*) \(at depth", text)
    incomplete = re.search(
        r"Search not completed|max search depth too small|out of memory|MEMLIM|aborting", text
    )
    complete = run.returncode == 0 and "errors: 0" in text and "states, stored" in text and not incomplete
    return Search(violated[1] if violated else "", complete, f"{configuration}: {text[-3000:]}")


def check_holds(folder: Path, configuration: str, megabytes: int, optimised: bool = False) -> None:
    found = search(folder, configuration, megabytes, optimised)
    assert not found.violated and found.complete, found.text


def check_violates(folder: Path, configuration: str, expected: str) -> None:
    found = search(folder, configuration, SMALL_MIB)
    assert re.fullmatch(rf"assertion violated\s+({expected})", found.violated), found.text


@pytest.mark.parametrize("configuration", SMALL)
def test_no_state_loses_a_byte(configuration: str, tmp_path: Path) -> None:
    check_holds(tmp_path, configuration, SMALL_MIB)


@pytest.mark.parametrize(("fault", "configuration", "expected"), FAULTS, ids=[name for name, _, _ in FAULTS])
def test_a_planted_fault_is_found(fault: str, configuration: str, expected: str, tmp_path: Path) -> None:
    check_violates(tmp_path, f"{configuration} {fault}", expected)


@pytest.mark.acceptance("storage")
@pytest.mark.parametrize(("rule", "configuration", "expected"), RULES, ids=[name for name, _, _ in RULES])
def test_no_rule_can_be_left_out(rule: str, configuration: str, expected: str, tmp_path: Path) -> None:
    check_violates(tmp_path, f"{configuration} {rule}", expected)


@pytest.mark.acceptance("storage")
@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        ("NODES=2 RECORDS=2 PROBE_REMOVED", PROBE),
        ("NODES=1 RECORDS=2 KILLS=2 PROBE_RECOVERED", PROBE),
        ("NODES=2 RECORDS=2 PROBE_SYNC", re.escape("!(j)")),
    ],
)
def test_a_state_is_reached(probe: str, expected: str, tmp_path: Path) -> None:
    check_violates(tmp_path, probe, expected)


@pytest.mark.acceptance("storage")
@pytest.mark.parametrize("configuration", LARGE)
def test_no_state_of_a_large_configuration_loses_a_byte(configuration: str, tmp_path: Path) -> None:
    check_holds(tmp_path, configuration, LARGE_MIB, optimised=True)
