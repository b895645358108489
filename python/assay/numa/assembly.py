"""The instructions of a function with the accesses of each, from the addresses in recordings.

The instructions are those of the file on this machine, which must have the build-id that it had when the recording was
made. objdump disassembles the function alone, within a limit of time.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from assay.errors import UserError
from assay.numa.elf import build_id, function_extent
from assay.numa.profile import UNKNOWN, Location, Profile
from assay.numa.recording import NOWHERE, Module, as_text
from assay.records.files import open_regular

OBJDUMP_LIMIT_S = 60
MAX_CODE_BYTES = 1 << 20  # of a function; the rest is left out
MAX_OUTPUT_BYTES = 64 << 20
LONGEST_INSTRUCTION = 16
_INSTRUCTION = re.compile(r"\s*([0-9a-f]+):\t(.*)")
RECORD_AGAIN = "record it again: assay numa -- PROGRAM"


class Accesses(Struct):
    """``remote`` and ``unknown``: of all, those to another node, and those of which a node is not known. In recordings
    of first touches the figures are pages, all in ``writes``."""

    reads: int = 0
    writes: int = 0
    remote: int = 0
    unknown: int = 0

    @property
    def total(self) -> int:
        return self.reads + self.writes


class Instruction(Struct):
    """``address`` in the file. ``file`` and ``line`` are known of instructions with accesses alone."""

    address: int
    text: str
    file: str
    line: int
    accesses: Accesses


class Assembly(Struct):
    """A function in one file. ``unplaced``: accesses of addresses that no shown instruction holds."""

    function: str
    binary: str
    build_id: str
    mode: str
    instructions: list[Instruction]
    unplaced: int


def assemblies(profiles: Sequence[Profile], function: str) -> list[Assembly]:
    """The function's instructions in each file that has it, of all processes together. Raises UserError."""
    best = [profile for profile in profiles if profile.is_exact] or list(profiles)
    groups: dict[tuple[str, str, str], dict[int, Accesses]] = defaultdict(lambda: defaultdict(Accesses))
    places: dict[tuple[str, int], Location] = {}
    by_line_alone = False
    for profile in best:
        for stack, location, count in _counts(profile):
            if location.function != function:
                continue
            addresses = profile.recording.stacks.get(stack)
            module = _module(profile, addresses[0]) if addresses else None
            if not addresses or module is None:
                by_line_alone = True
                continue
            path = as_text(module.path)
            address = addresses[0] - module.bias
            sums = groups[path, profile.build_ids.get(module.path, ""), profile.recording.process.mode][
                address
            ]
            for name in Accesses.__struct_fields__:
                setattr(sums, name, getattr(sums, name) + getattr(count, name))
            places[path, address] = location
    if not groups:
        raise _absent(best, function, by_line_alone)
    return [
        _assembly(function, path, recorded_id, mode, counts, places)
        for (path, recorded_id, mode), counts in groups.items()
    ]


def _counts(profile: Profile) -> list[tuple[int, Location, Accesses]]:
    """The stack, the innermost location and the figures of each row."""
    recording = profile.recording
    rows = recording.accesses if profile.has_accesses else recording.touches
    result = []
    for row in rows:
        frames = profile.stacks.get(row.stack, [])
        reads, writes = (0, row.pages) if hasattr(row, "pages") else (row.reads, row.writes)
        is_unknown = NOWHERE in (row.thread_node, row.page_node)
        is_remote = not is_unknown and row.thread_node != row.page_node
        count = Accesses(reads, writes, (reads + writes) * is_remote, (reads + writes) * is_unknown)
        result.append((row.stack, profile.locations[frames[0]] if frames else UNKNOWN, count))
    return result


def _module(profile: Profile, address: int) -> Module | None:
    modules = profile.recording.modules
    return next((module for module in modules if module.begin <= address < module.end), None)


def _absent(profiles: Sequence[Profile], function: str, by_line_alone: bool) -> UserError:
    if by_line_alone:
        return UserError(
            f"the recording has no addresses of {function}: the pass for clang counts by line",
            "record it with --every-access, or compile with gcc: CC=gcc assay numa cc",
        )
    sums: dict[str, int] = defaultdict(int)
    for profile in profiles:
        for _, location, count in _counts(profile):
            sums[location.function] += count.total
    largest = sorted(sums, key=lambda name: -sums[name])[:3]
    return UserError(
        f"no function {function} accesses memory in the recording",
        f"give one of the functions of the report, such as {', '.join(largest)}" if largest else RECORD_AGAIN,
    )


def _assembly(
    function: str,
    path: str,
    recorded_id: str,
    mode: str,
    counts: Mapping[int, Accesses],
    places: Mapping[tuple[str, int], Location],
) -> Assembly:
    if not path.startswith("/"):
        raise UserError(f"{function} is in {path}, which is no file", "choose a function of the program")
    if not recorded_id:
        raise UserError(
            f"the recording has no build-id of {path}",
            "link it with -Wl,--build-id, and " + RECORD_AGAIN,
        )
    try:
        with open_regular(Path(path)) as file:
            found = build_id(file)
            if found != recorded_id:
                raise UserError(
                    f"{path} has changed since it was recorded: its build-id is {found or 'none'}, not {recorded_id}",
                    RECORD_AGAIN,
                )
            begin, end = _extent(file, path, mode, sorted(counts))
            listed = _disassemble(file, path, begin, min(end, begin + MAX_CODE_BYTES))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", "put it back, or " + RECORD_AGAIN) from None
    instructions = [Instruction(address, text, "", 0, Accesses()) for address, text in listed]
    starts = [instruction.address for instruction in instructions]
    unplaced = 0
    for address, count in counts.items():
        index = bisect_right(starts, address) - 1
        # gcc's hooks are recorded by an address within the call, the others by the instruction's own.
        if index < 0 or address >= end or address - starts[index] >= LONGEST_INSTRUCTION:
            unplaced += count.total
            continue
        instruction, location = instructions[index], places[path, address]
        sums = instruction.accesses
        for name in Accesses.__struct_fields__:
            setattr(sums, name, getattr(sums, name) + getattr(count, name))
        instruction.file, instruction.line = location.file, location.line
    return Assembly(function, path, recorded_id, mode, instructions, unplaced)


def _extent(file: BinaryIO, path: str, mode: str, addresses: Sequence[int]) -> tuple[int, int]:
    """The function's symbol, or else the range of its recorded addresses."""
    found = function_extent(file, addresses[0])
    if found:
        return found
    if mode == "gcc":  # its addresses are not the beginnings of instructions
        raise UserError(f"{path} has no symbols", "do not strip it, and " + RECORD_AGAIN)
    return addresses[0], addresses[-1] + LONGEST_INSTRUCTION


def _disassemble(file: BinaryIO, path: str, begin: int, end: int) -> list[tuple[int, str]]:
    """Addresses and texts of the instructions. The open file is read, so that it is the one that was checked."""
    if shutil.which("objdump") is None:
        raise UserError("no objdump", "Debian: apt-get install binutils")
    command = [
        "objdump", "--disassemble", "--wide", "--no-show-raw-insn", "--demangle",
        f"--start-address={begin:#x}", f"--stop-address={end:#x}", f"/proc/self/fd/{file.fileno()}",
    ]  # fmt: skip
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=[file.fileno()],
    ) as process:
        assert process.stdout is not None
        timer = threading.Timer(OBJDUMP_LIMIT_S, process.kill)
        timer.start()
        try:
            output = process.stdout.read(MAX_OUTPUT_BYTES + 1)
            if len(output) > MAX_OUTPUT_BYTES:
                process.kill()
            process.wait()
        finally:
            timer.cancel()
            process.kill()
    if process.returncode == -signal.SIGKILL:
        raise UserError(
            f"objdump took over {OBJDUMP_LIMIT_S} s or wrote over {MAX_OUTPUT_BYTES >> 20} MiB on {path}",
            "choose a smaller function",
        )
    lines = map(_INSTRUCTION.fullmatch, output.decode(errors="replace").splitlines())
    rows = [(int(line[1], 16), line[2].strip()) for line in lines if line]
    if not rows:
        raise UserError(f"objdump does not disassemble {path}", "see: objdump --disassemble FILE")
    return rows
