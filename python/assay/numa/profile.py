"""A NUMA recording with names for its addresses, and counts of its accesses and pages by object, thread and line.

Shares are of the known accesses or pages: those of which the thread's node and the page's node are known
(``Counts.known``).
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from assay.errors import REPAIR, UserError
from assay.launch.engines import engines_folder
from assay.numa.elf import build_id_of
from assay.numa.recording import NOWHERE, RECORDERS, Recording, as_shown, as_text, check_recording
from assay.records.files import read_regular, replace_file

SYMBOLS_LIMIT_S = 600
# Libraries that act for a caller in the program. Their accesses count for the caller's line.
RUNTIME = ("libc.so", "libc-", "ld-linux", "libassay-numa", "libgomp", "libomp", "libstdc++", "libgcc_s", "libm.so",
           "libpthread", "libgfortran", "[vdso]")  # fmt: skip
MEMORY_FUNCTIONS = re.compile(r"_*(mem(set|cpy|move|pcpy|mpcpy)|str(cpy|cat|dup|ncpy|ncat)|bzero)($|_)")
T = TypeVar("T")


class Location(Struct, frozen=True):
    """``file`` is empty without debug information; ``line`` is then 0."""

    function: str
    file: str
    line: int
    module: str

    @property
    def source(self) -> str:
        return f"{self.file}:{self.line}" if self.file else self.module.rpartition("/")[2] or "no object"

    @property
    def is_runtime(self) -> bool:
        in_library = self.module.rpartition("/")[2].startswith(RUNTIME)
        return in_library or MEMORY_FUNCTIONS.match(self.function) is not None


UNKNOWN = Location("(unknown code)", "", 0, "")


class Profile(Struct):
    """``stacks``: numbers of locations by number of the stack, innermost first. ``build_ids``: of the objects, by the
    path of the recording, when their addresses were named."""

    recording: Recording
    locations: list[Location] = []
    stacks: dict[int, list[int]] = {}
    build_ids: dict[str, str] = {}

    @property
    def title(self) -> str:
        process = self.recording.process
        command = [as_shown(word) for word in process.command.split("\0") if word]
        rank = f", rank {process.rank}" if process.rank else ""
        return f"{' '.join(command) or 'unknown program'} ({process.pid}{rank})"

    @property
    def has_accesses(self) -> bool:
        """Whether accesses were counted or sampled, not only first touches."""
        return self.recording.process.mode != "touch"

    @property
    def is_exact(self) -> bool:
        """Whether the program itself, or its emulator, counted every access."""
        return self.recording.process.mode not in RECORDERS

    def site(self, stack: int) -> Location:
        """The innermost location that is not in a runtime library."""
        frames = [self.locations[number] for number in self.stacks.get(stack, [])]
        return next((frame for frame in frames if not frame.is_runtime), frames[0] if frames else UNKNOWN)

    def name(self, number: int) -> str:
        """The name of an object: its allocating line, else its own name, else its kind."""
        if number == NOWHERE:
            return "all objects"
        entry = self.recording.objects[number]
        if entry.stack:
            site = self.site(entry.stack)
            return f"{site.function} ({site.source})"
        return as_shown(entry.name).rpartition("/")[2] or entry.kind


@dataclass
class Counts:
    """Accesses or pages by node of the thread and node of the page; ``NOWHERE`` where that is not known."""

    cells: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))

    def add(self, thread_node: int, page_node: int, count: int) -> None:
        self.cells[thread_node, page_node] += count

    @property
    def total(self) -> int:
        return sum(self.cells.values())

    @property
    def known(self) -> int:
        return sum(n for (a, b), n in self.cells.items() if NOWHERE not in (a, b))

    @property
    def remote(self) -> int:
        return sum(n for (a, b), n in self.cells.items() if NOWHERE not in (a, b) and a != b)

    @property
    def remote_share(self) -> float | None:
        """Remote over known accesses or pages; None if none are known."""
        return self.remote / self.known if self.known else None

    def by_page_node(self) -> dict[int, int]:
        sums: dict[int, int] = defaultdict(int)
        for (_, node), count in self.cells.items():
            sums[node] += count
        return dict(sums)

    def by_thread_node(self) -> dict[int, int]:
        sums: dict[int, int] = defaultdict(int)
        for (node, _), count in self.cells.items():
            sums[node] += count
        return dict(sums)


def _sum_by_key(rows: Iterable[tuple[T, int, int, int]]) -> dict[T, Counts]:
    groups: dict[T, Counts] = defaultdict(Counts)
    for key, thread_node, page_node, count in rows:
        groups[key].add(thread_node, page_node, count)
    return dict(sorted(groups.items(), key=lambda item: -item[1].total))


def total(profile: Profile) -> Counts:
    """The access matrix; in touch mode pages by the node of the thread that touched them first."""
    return next(iter(by_site(profile, lambda _: UNKNOWN).values()), Counts())


def by_site(profile: Profile, site: Callable[[int], Location] | None = None) -> dict[Location, Counts]:
    """By the line that accesses, or that touches first; the largest first."""
    where = site or profile.site
    recording = profile.recording
    if profile.has_accesses:
        return _sum_by_key(
            (where(row.stack), row.thread_node, row.page_node, row.reads + row.writes)
            for row in recording.accesses
        )
    return _sum_by_key(
        (where(row.stack), row.thread_node, row.page_node, row.pages) for row in recording.touches
    )


def by_object(profile: Profile) -> dict[int, Counts]:
    """By number of the object; the largest first."""
    if profile.has_accesses:
        rows = profile.recording.parts
        return _sum_by_key((row.object, row.thread_node, row.page_node, row.accesses) for row in rows)
    return _sum_by_key(
        (row.object, row.thread_node, row.page_node, row.pages) for row in profile.recording.touches
    )


def by_thread(profile: Profile) -> dict[int, Counts]:
    recording = profile.recording
    if profile.has_accesses:
        return _sum_by_key(
            (row.thread, row.thread_node, row.page_node, row.reads + row.writes) for row in recording.accesses
        )
    return _sum_by_key((row.thread, row.thread_node, row.page_node, row.pages) for row in recording.touches)


def first_touches(profile: Profile) -> dict[tuple[int, Location, int], Counts]:
    """Pages by object, touching line and thread."""
    return _sum_by_key(
        ((row.object, profile.site(row.stack), row.thread), row.thread_node, row.page_node, row.pages)
        for row in profile.recording.touches
    )


def resident(profile: Profile) -> dict[int, dict[int, int]]:
    """Pages of each object by node, at the time when it had most pages in memory."""
    pages: dict[int, dict[int, int]] = defaultdict(dict)
    for row in profile.recording.placed:
        pages[row.object][row.node] = row.pages
    return dict(pages)


def resolve(recording: Recording) -> Profile:
    """Names the addresses of a recording from the objects on this machine. Raises UserError."""
    numbers: dict[Location, int] = {}
    stacks: dict[int, list[int]] = {}
    named = _name_addresses(recording)
    for stack, addresses in recording.stacks.items():
        frames = [location for address in addresses for location in named[address]]
        stacks[stack] = [numbers.setdefault(frame, len(numbers)) for frame in frames]
    for stack, site in recording.sites.items():
        location = Location(as_shown(site.function), as_shown(site.file), site.line, "")
        stacks[stack] = [numbers.setdefault(location, len(numbers))]
    paths = {module.path for module in recording.modules if module.path.startswith("/")}
    build_ids = {path: build_id_of(Path(as_text(path))) for path in sorted(paths)}
    return Profile(recording, list(numbers), stacks, build_ids)


def _name_addresses(recording: Recording) -> dict[int, list[Location]]:
    addresses = sorted({address for stack in recording.stacks.values() for address in stack})
    if not addresses:
        return {}
    lines = [
        f"module {module.bias:x} {module.begin:x} {module.end:x} - {as_text(module.path)}"
        for module in recording.modules
        if "\n" not in module.path
    ]
    lines += [f"address {address:x}" for address in addresses]
    try:
        done = subprocess.run(
            [engines_folder() / "assay-numa", "symbols"],
            input="\n".join(lines).encode(errors="surrogateescape") + b"\n",
            capture_output=True,
            timeout=SYMBOLS_LIMIT_S,
        )
    except FileNotFoundError:
        raise UserError(f"{engines_folder() / 'assay-numa'} is missing", REPAIR) from None
    except subprocess.TimeoutExpired:
        raise UserError(f"naming the addresses took over {SYMBOLS_LIMIT_S} s", "record less") from None
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip().removeprefix("assay-numa: ")
        raise UserError(message or f"assay-numa symbols ended with status {done.returncode}")
    decoder = msgspec.json.Decoder(list[tuple[str, str, int, str, bool]])
    named = [decoder.decode(line) for line in done.stdout.splitlines()]
    if len(named) != len(addresses):
        raise UserError("assay-numa symbols did not name every address", REPAIR)
    return {
        address: [Location(function, file, line, module) for function, file, line, module, _ in frames]
        for address, frames in zip(addresses, named, strict=True)
    }


def load_profile(path: Path) -> Profile:
    """The profile that ``save_profile`` wrote. Raises UserError."""
    try:
        profile = msgspec.json.decode(read_regular(path), type=Profile)
        check_recording(profile.recording)
        if any(not 0 <= k < len(profile.locations) for frames in profile.stacks.values() for k in frames):
            raise ValueError("a stack refers to a location that does not exist")
        return profile
    except (OSError, ValueError, msgspec.DecodeError) as error:
        raise UserError(f"{path}: {error}", "record it again: assay numa -- PROGRAM") from None


def save_profile(profile: Profile, path: Path) -> None:
    replace_file(path, msgspec.json.encode(profile))
