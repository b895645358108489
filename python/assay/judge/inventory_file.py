"""Reads the ``[inventory]`` table of a specification, and writes such a table from a machine's devices.

[inventory]
sockets = 2
memory = "187 GiB"
gpus = {count = 2, link = "126 Gbit/s"}
rdma_ports = {count = 4, rate = "100 Gbit/s", link_layer = "InfiniBand"}
ethernet_ports = [{count = 2, speed = "10 Gbit/s", mtu = "9000 B"}, {count = 1, speed = "1 Gbit/s"}]
ignore = ["eth5"]
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from assay.errors import UserError
from assay.judge.inventory import DeviceLine, Inventory, Kind
from assay.records.devices import EthernetPort, ethernet_ports, gpus, rdma_ports
from assay.records.schema import AnyRecord, Context
from assay.records.text import one_line
from assay.records.toml import TomlFile
from assay.records.units import Quantity, format_as, parse_quantity, unit_of

RATE_KEY: dict[Kind, str] = {"gpus": "link", "rdma_ports": "rate", "ethernet_ports": "speed"}
KEYS: dict[Kind, tuple[str, ...]] = {
    "gpus": ("count", "link"),
    "rdma_ports": ("count", "rate", "link_layer"),
    "ethernet_ports": ("count", "speed", "mtu"),
}
LINK_LAYERS = ("", "InfiniBand", "Ethernet")
MAX_COUNT = 100_000  # devices or sockets of a host; a larger number is a typing error


def read_inventory(file: TomlFile, table: Any) -> Inventory:
    """Reads and checks the table. Raises UserError with file and line for any mistake."""
    if not isinstance(table, dict):
        file.refuse("inventory", "'inventory' is not a table", "write [inventory]")
    file.refuse_unknown_keys(table, ("sockets", "numa_nodes", "memory", *KEYS, "ignore"), "[inventory]")
    memory = _quantity(file, table, "memory", "B")
    memory_unit = unit_of(str(table.get("memory", ""))) or "GiB"
    devices = tuple(line for kind in KEYS for line in _lines(file, kind, table.get(kind, [])))
    inventory = Inventory(
        _count(file, table, "sockets"), _count(file, table, "numa_nodes"),
        memory.value if memory else None, memory_unit, devices, _read_ignored(file, table.get("ignore", [])),
    )  # fmt: skip
    if inventory == Inventory(ignore=inventory.ignore):
        file.refuse("inventory", "[inventory] is empty", "give sockets, memory, gpus, rdma_ports, ...")
    return inventory


def _lines(file: TomlFile, kind: Kind, value: Any) -> list[DeviceLine]:
    tables = [value] if isinstance(value, dict) else value
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        file.refuse(
            kind, f"'{kind}' is not a table", f"write {kind} = {{count = 2}}, or a list of such tables"
        )
    lines = []
    for table in tables:
        file.refuse_unknown_keys(table, KEYS[kind], kind, kind)
        count = _count(file, table, "count", kind)
        if count is None:
            file.refuse(kind, f"{kind} has no count", f"write {kind} = {{count = 2}}")
        rate = _quantity(file, table, RATE_KEY[kind], "B/s", kind)
        mtu = _quantity(file, table, "mtu", "B", kind)
        layer = table.get("link_layer", "")
        if layer not in LINK_LAYERS:
            file.refuse(kind, f"link_layer = {layer!r} is not known", "choose InfiniBand or Ethernet")
        rate_unit = unit_of(str(table.get(RATE_KEY[kind], ""))) or "Gbit/s"
        lines.append(
            DeviceLine(
                kind, count, rate.value if rate else 0.0, rate_unit, layer, int(mtu.value) if mtu else 0
            )
        )
    return lines


def _count(file: TomlFile, table: dict[str, Any], key: str, reported: str = "") -> int | None:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_COUNT:
        file.refuse(
            reported or key, f"{key} = {value!r} is not a count", "write a whole number of at least 1"
        )
    return value


def _quantity(
    file: TomlFile, table: dict[str, Any], key: str, unit: str, reported: str = ""
) -> Quantity | None:
    value = table.get(key)
    if value is None:
        return None
    try:
        quantity = parse_quantity(value) if isinstance(value, str) else None
    except UserError as error:
        file.refuse(reported or key, error.what, error.fix)
    if quantity is None or quantity.unit != unit or not 0 < quantity.value < math.inf:
        example = "'100 Gbit/s'" if unit == "B/s" else "'187 GiB'"
        file.refuse(reported or key, f"{key} = {value!r} does not fit", f"write it like {example}")
    return quantity


def _read_ignored(file: TomlFile, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        file.refuse("ignore", "'ignore' is not a list of devices", "write ignore = ['eth5', 'mlx5_1:1']")
    return tuple(value)


def inventory_of(records: Sequence[AnyRecord], host: str) -> Inventory:
    """The inventory of a host: its ports that are up or active, GPUs on the bus, memory rounded down."""
    facts = next(
        r.facts
        for r in records
        if isinstance(r, Context) and r.subject.host == host and r.subject.device is None
    )
    rdma = Counter((p.rate, p.link_layer) for p in rdma_ports(records, host) if p.is_active)
    ethernet = Counter((p.speed, p.mtu) for p in ethernet_ports(records, host) if _is_counted(p))
    count = len(gpus(records, host))
    return Inventory(
        sockets=_count_of(facts.get("cpu.packages")),
        numa_nodes=_count_of(facts.get("numa.nodes")),
        memory=_rounded_down(float(facts.get("memory.bytes", 0))) or None,
        devices=(
            *([DeviceLine("gpus", count)] if count else []),
            *(DeviceLine("rdma_ports", n, rate, link_layer=layer) for (rate, layer), n in rdma.items()),
            *(DeviceLine("ethernet_ports", n, speed, mtu=mtu) for (speed, mtu), n in ethernet.items()),
        ),
    )


def not_counted(records: Sequence[AnyRecord], host: str) -> list[str]:
    """Describes the devices that are present and left out of ``inventory_of``."""
    rdma = [port.description() for port in rdma_ports(records, host) if not port.is_active]
    return rdma + [port.description() for port in ethernet_ports(records, host) if not _is_counted(port)]


def _is_counted(port: EthernetPort) -> bool:
    return port.is_up and port.speed > 0 and not port.master


def _count_of(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and value >= 1 else None


def _rounded_down(size: float) -> float:
    """``size`` in whole GiB from 16 GiB on, in tenths below: kernels of equal machines reserve different amounts."""
    step = 2**30 if size >= 16 * 2**30 else 2**30 / 10
    return math.floor(size / step) * step


def to_toml(inventory: Inventory, comments: Sequence[str] = ()) -> str:
    """The table as text that ``read_inventory`` reads back."""
    lines = [f"# {one_line(comment)}" for comment in comments] + ["[inventory]"]
    if inventory.sockets is not None:
        lines.append(f"sockets = {inventory.sockets}")
    if inventory.numa_nodes is not None:
        lines.append(f"numa_nodes = {inventory.numa_nodes}")
    if inventory.memory is not None:
        lines.append(f'memory = "{inventory.memory / 2**30:.10g} GiB"')
    for kind in KEYS:
        tables = [_table(line) for line in inventory.lines(kind)]
        if tables:
            lines.append(f"{kind} = {tables[0] if len(tables) == 1 else '[' + ', '.join(tables) + ']'}")
    return "\n".join(lines) + "\n"


def _table(line: DeviceLine) -> str:
    parts = [f"count = {line.count}"]
    if line.rate:
        parts.append(f'{RATE_KEY[line.kind]} = "{_rate_text(line.rate)}"')
    if line.link_layer in LINK_LAYERS and line.link_layer:
        parts.append(f'link_layer = "{line.link_layer}"')
    if line.mtu:
        parts.append(f'mtu = "{line.mtu} B"')
    return "{" + ", ".join(parts) + "}"


def _rate_text(rate: float) -> str:
    text = format_as(rate, "Gbit/s")
    return text if parse_quantity(text).value == rate else f"{rate:.17g} B/s"
