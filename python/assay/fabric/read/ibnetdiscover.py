"""The output of ibnetdiscover: a block for each switch and adapter, a line for each of its cables.

Switch  36 "S-0000000000200002"    # "leaf2" base port 0 lid 4 lmc 0
[1]     "H-0000000000100048"[1](100049)    # "node36 HCA-1" lid 58 4xSDR
[19]    "S-0000000000200003"[3]    # "spine0" lid 6 4xSDR

Ca      1 "H-0000000000100048"     # "node36 HCA-1"
[1](100049)    "S-0000000000200002"[1]    # lid 58 lmc 0 "leaf2" lid 4 4xSDR

ibdiagnet2.ibnetdiscover has a port's label behind its number: [2](1/1/2) at a switch, [1](1)(100049) at an adapter. A
console may have lost the tabs.
"""

from __future__ import annotations

import re
from pathlib import Path

from assay.fabric.read.cables import FabricBuilder, Node
from assay.fabric.read.text import MESSAGE, LineReader, clean, is_harmless, printable
from assay.fabric.topology import Fabric
from assay.records.foreign.leading import HARMLESS
from assay.records.notes import tell

_NODE = re.compile(r'(Switch|Ca|Rt)\s*([0-9]{1,5})\s*"([SHR])-([0-9a-fA-F]{1,16})"\s*(?:#\s*"(.*)")?([^"]*)$')
_LABEL = r"(?:\[ext [0-9]+\])?(?:\([^()\s]*/[^()\s]*\)|\([^()\s]+\)(?=\())?"
_END = re.compile(
    rf"\[([0-9]{{1,5}})\]{_LABEL}(?:\(([0-9a-fA-F]{{1,16}})\))?\s*"
    rf'"([SHR])-([0-9a-fA-F]{{1,16}})"\[([0-9]{{1,5}})\]{_LABEL}(?:\s*\([0-9a-fA-F]{{1,16}}\))?\s*(?:#\s*(.*))?$'
)
_LID = re.compile(r"\blid ([0-9]{1,6})\b")
_LMC = re.compile(r"\blmc ([0-7])\b")
_RATE = re.compile(r"\b([0-9]{1,2})x([A-Z]+[0-9]*)\b(?!.*\")")
_ATTRIBUTE = re.compile(r"(vendid|devid|sysimgguid|switchguid|caguid|rtguid)=0x[0-9a-fA-F]+")
_PROMPT = re.compile(r'[^"]*[#$%>](?: ?(?:exit|logout))?')  # of a shell, behind the output on a console
SHOWN = 8  # adapters in a note
_OTHER = re.compile(r"(Chassis|Spine|Line|Non-Chassis)\b|Hostname: ")  # headings of ibnetdiscover -g


def looks_like(head: str) -> bool:
    return re.search(r'^[ \t]*(Switch|Ca|Rt)\s*[0-9]+ ?"[SHR]-', head, re.MULTILINE) is not None


def message_of(head: str) -> str:
    """The first message of the tool in a file that has no node; empty where there is none."""
    lines = map(str.strip, head.splitlines())
    return next((line for line in lines if MESSAGE.match(line) and not HARMLESS.match(line)), "")


def read(path: Path) -> Fabric:
    """Raises UserError with file and line."""
    text = LineReader(path)
    cables = FabricBuilder(text)
    kind, guid, name, ports = "", 0, "", 0
    idle: dict[int, str] = {}  # adapters without a cable, by GUID
    prompt, prompt_line = "", 0  # lines behind the output
    for number, line in text:
        line = line.strip()  # copied out of a page or a mail, it is indented
        if not line or line.startswith("#") or _ATTRIBUTE.match(line) or _OTHER.match(line):
            continue
        match = _NODE.fullmatch(line)
        if prompt and (match or _END.fullmatch(line)):
            text.refuse(prompt_line, "not a line of ibnetdiscover", "give its whole output, unchanged")
        if match:
            kind, guid = match[1], int(match[4], 16)
            name, ports = match[5] or "", int(match[2])
            if kind == "Switch":
                cables.add_switch(guid, name, ports, _lid(match[6]), number, _lmc(match[6]))
            else:
                idle[guid] = clean(name) or f"{guid:#018x}"
            continue
        match = _END.fullmatch(line)
        if not match and is_harmless(text, number, line, "; without this line the rest is read as it is"):
            continue
        if not match and line.startswith(("< ", "> ")):
            text.refuse(number, "a difference (ibnetdiscover --diff)", "give the output without --diff")
        if not match and cables.ends and _PROMPT.fullmatch(line):
            prompt, prompt_line = line, number
            continue
        if not match:
            text.refuse(number, "not a line of ibnetdiscover", "give its whole output, unchanged")
        if not kind:
            text.refuse(number, "a port before the first switch or adapter", "is the file complete?")
        _read_end(text, cables, (kind, guid, name), match, number)
        idle.pop(guid, None)
    if prompt:
        tell(f"{path}:{prompt_line}: what is behind the output is left out: '{printable(prompt)[:80]}'")
    _refuse_cut_line(cables)
    listed = ", ".join(list(idle.values())[:SHOWN]) + (
        f" and {len(idle) - SHOWN} more" if len(idle) > SHOWN else ""
    )
    _refuse_without_cables(cables, listed)
    fabric = cables.build()
    if idle:
        tell(f"{path}: adapters without a cable left out: {listed}")
    return fabric


def _refuse_without_cables(cables: FabricBuilder, idle: str) -> None:
    """Raises UserError where there are only adapters: ibnetdiscover began at a port that is not plugged."""
    if idle and not cables.ends:
        cables.text.refuse(
            cables.text.last,
            f"no cable in it, only the adapter {idle}",
            "ibnetdiscover began at a port without a link: name another (-C mlx5_1 -P 1, see ibstat)",
        )


def _refuse_cut_line(cables: FabricBuilder) -> None:
    """Raises UserError where the last line has no end and no rate, as others have: its LID may be cut, too."""
    text = cables.text
    has_rate = {end.line == text.last for end in cables.ends.values() if end.speed}
    if not text.is_ended and has_rate == {False} and any(e.line == text.last for e in cables.ends.values()):
        text.refuse(text.last, "the file ends within this line", "it is cut short: take it again")


def _read_end(
    text: LineReader, cables: FabricBuilder, owner: tuple[str, int, str], match: re.Match[str], line: int
) -> None:
    kind, guid, name = owner
    port, peer_port = int(match[1]), int(match[5])
    node = Node(guid, 0 if kind == "Switch" else port)
    if kind != "Switch":
        if match[2] is None:
            text.refuse(
                line,
                "the port's GUID is missing, as in ibnetdiscover of 2006",
                "take the topology again by a newer ibnetdiscover",
            )
        attributes = (match[6] or "").partition('"')[0]
        cables.add_host(
            node, int(match[2], 16), name, _lid(attributes), line, _lmc(attributes), is_router=kind == "Rt"
        )
    peer = Node(int(match[4], 16), 0 if match[3] == "S" else peer_port)
    rate = _RATE.search(match[6] or "")
    cables.add_end(node, port, peer, peer_port, int(rate[1]) if rate else 0, rate[2] if rate else "", line)


def _lid(text: str) -> int:
    match = _LID.search(text)
    return int(match[1]) if match else 0


def _lmc(text: str) -> int:
    match = _LMC.search(text)
    return int(match[1]) if match else 0
