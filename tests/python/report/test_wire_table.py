"""The table of bytes on the wire, from planted adapter counters."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from assay.records.schema import AnyRecord, Context, Measurement, Subject, Summary
from assay.report.wire import show_wire


def counted(host: str, device: str, sent: float) -> Measurement:
    return Measurement(name="network.counters", metric="tx_bytes", unit="B",
                       subject=Subject(host=host, device=device), summary=Summary(n=1, median=sent))  # fmt: skip


def link(host: str, device: str, speed: float) -> Context:
    facts = {"interface.state": "up", "interface.kind": "physical", "interface.speed": speed}
    return Context(subject=Subject(host=host, device=device), facts=facts)


def shown(records: list[AnyRecord]) -> str:
    text = StringIO()
    show_wire(Console(file=text, width=120), records)
    return text.getvalue()


WIRE = Measurement(name="network.wire", metric="share", unit="1", subject=Subject(host="n1"))


def test_each_adapter_is_a_row_with_its_share_and_link() -> None:
    records: list[AnyRecord] = [WIRE]
    for host in ("n1", "n2", "n3"):
        records += [counted(host, "eth0", 9.0 * 2**30), counted(host, "eth1", 2.0**30)]
        records += [link(host, "eth0", 1.25e8), link(host, "eth1", 1.25e10), link(host, "eth2", 1.25e10)]
    lines = [line.split() for line in shown(records).splitlines() if line.strip()]
    rows = {words[0]: words[1:] for words in lines[1:]}
    assert rows["eth0"][:5] == ["n[1-3]", "9", "GiB", "90", "%"]
    assert rows["eth1"][:5] == ["n[1-3]", "1", "GiB", "10", "%"]
    assert rows["eth2"][:3] == ["n[1-3]", "0", "B"]  # up, and idle


def test_hosts_that_differ_have_their_own_rows() -> None:
    records: list[AnyRecord] = [WIRE, counted("n1", "eth0", 1e9), counted("n2", "eth0", 1e9)]
    records += [link("n1", "eth0", 1.25e8), link("n2", "eth0", 1.25e9)]
    assert [line.split()[1] for line in shown(records).splitlines()[1:] if line.strip()] == ["n1", "n2"]


def test_without_a_network_or_anything_to_compare_there_is_no_table() -> None:
    assert shown([counted("n1", "eth0", 1e9)]) == ""
    assert shown([WIRE, counted("n1", "eth0", 1e9)]) == ""
