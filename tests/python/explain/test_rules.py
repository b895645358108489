"""Rules on corruption, counters and adapters: each finds its planted cause, and a healthy run has no finding."""

import pytest
from planted import TwoCabinets

from assay.explain import RULES, explain
from assay.judge import judge, load_specification, overall
from assay.judge.specification import find_specification
from assay.records.schema import AnyRecord, Corruption, Failure, Measurement, Subject, Summary


def measured(
    name: str, metric: str, value: float, host: str, device: str | None = None, identity: int = 1
) -> Measurement:
    subject = Subject(host=host, device=device)
    return Measurement(
        id=identity, name=name, metric=metric, unit="1", subject=subject, summary=Summary(n=1, median=value)
    )


def corruption(host: str, peer: str, offset: int = 4096, identity: int = 1) -> Corruption:
    return Corruption(
        id=identity,
        name="network.all_to_all",
        subject=Subject(host=host, peer=peer),
        params={"size": 65536},
        message=7,
        offset=offset,
        expected="00ff00ff00ff00ff",
        observed="00ff00fe00ff00ff",
    )


def server_bytes(first: float, second: float, third: float = 0.0) -> list[AnyRecord]:
    carried = {"mlx5_0": first, "mlx5_1": second, "mlx5_2": third}
    return [
        measured("network.counters", metric, value / 2, "server2", device)
        for device, value in carried.items()
        for metric in ("port_xmit_data", "port_rcv_data")
    ]


OPTIONS = {"servers": "server[2]", "servers_hcas": "mlx5_0:mlx5_1"}


def healthy() -> list[AnyRecord]:
    lab = TwoCabinets(0)
    wire: list[AnyRecord] = [measured("network.wire", "share", 1.04, host) for host in lab.hosts]
    quiet: list[AnyRecord] = [
        measured("network.counters", name, value, host, "eth0")
        for host in lab.hosts
        for name, value in {
            "rx_errors": 0.0,
            "tx_dropped": 12.0,
            "port_xmit_wait": 1e6,
            "symbol_error": 0.0,
        }.items()
    ]
    return lab.rows() + wire + quiet + server_bytes(5.1e9, 4.9e9, 1e5)


def test_a_healthy_run_has_no_finding() -> None:
    assert explain(healthy(), options=OPTIONS) == []


def test_findings_have_the_name_of_their_rule() -> None:
    """A specification refers to findings by the name of their rule."""
    planted = [
        *TwoCabinets(0, transmit={3: 0.4}).rows(),
        corruption("h1", "h2"),
        measured("network.wire", "share", 0.2, "h3"),
        measured("network.counters", "symbol_error", 3, "h3", "mlx5_0"),
        *server_bytes(9e9, 0),
    ]
    rules = {finding.rule for finding in explain(planted, options=OPTIONS)}
    assert rules == {"corruption", "wire_bypass", "port_errors", "hca_binding", "slow_host"}
    assert rules <= set(RULES)


def test_faults_come_before_warnings() -> None:
    planted: list[AnyRecord] = [
        measured("network.counters", "rx_errors", 3, "h3", "eth0"),
        measured("network.wire", "share", 0.2, "h3"),
    ]
    assert [finding.severity for finding in explain(planted)] == ["fault", "warning"]


def test_an_mpi_that_bypasses_the_network_is_a_fault() -> None:
    records: list[AnyRecord] = [
        measured("network.wire", "share", 0.03, "h3", identity=8),
        measured("network.wire", "share", 1.0, "h4"),
    ]
    (finding,) = explain(records)
    assert (finding.rule, finding.subject.host, finding.severity, finding.evidence) == (
        "wire_bypass",
        "h3",
        "fault",
        [8],
    )
    assert finding.effect == pytest.approx(-0.97)
    assert "bypasses the network on h3" in finding.cause


def test_one_corrupted_pair_is_located() -> None:
    (finding,) = explain([corruption("h1", "h2", 4096, 5)])
    assert (finding.side, finding.subject, finding.evidence) == ("pair", Subject("h1", "h2"), [5])
    (line,) = finding.details
    assert "message 7 of 64 KiB, offset 4096: expected 00ff00ff00ff00ff, got 00ff00fe00ff00ff" in line


@pytest.mark.parametrize(
    ("pairs", "side", "host"),
    [([("h1", "h2"), ("h1", "h3")], "transmit", "h1"), ([("h2", "h1"), ("h3", "h1")], "receive", "h1")],
)
def test_corrupted_pairs_that_share_an_end_name_it(
    pairs: list[tuple[str, str]], side: str, host: str
) -> None:
    (finding,) = explain([corruption(source, target) for source, target in pairs])
    assert (finding.side, finding.subject) == (side, Subject(host=host))
    assert any("always at offset 4096" in line for line in finding.details)


def test_corrupted_pairs_without_a_common_end_are_separate_findings() -> None:
    findings = explain([corruption("h1", "h2"), corruption("h3", "h4"), corruption("h3", "h4", 17)])
    assert [(f.subject.host, f.subject.peer, len(f.evidence)) for f in findings] == [
        ("h1", "h2", 1),
        ("h3", "h4", 2),
    ]
    many = explain([corruption("h1", "h2", offset) for offset in range(30)])
    assert len(many[0].details) == 9 and many[0].details[-1] == "and 22 more"


def test_port_errors_are_one_warning_per_device() -> None:
    records: list[AnyRecord] = [
        measured("network.counters", "symbol_error", 4, "h3", "mlx5_0"),
        measured("network.counters", "link_downed", 1, "h3", "mlx5_0"),
        measured("network.counters", "rx_crc_errors", 2, "h3", "eth0"),
        measured("network.counters", "rx_dropped", 99, "h4", "eth0"),
    ]
    findings = explain(records)
    assert [(f.subject.device, f.severity) for f in findings] == [
        ("mlx5_0", "warning"),
        ("eth0", "warning"),
    ]
    assert findings[0].details == ["mlx5_0 symbol_error grew by 4", "mlx5_0 link_downed grew by 1"]


@pytest.mark.parametrize(
    ("carried", "device", "effect", "message"),
    [
        ((9.9e9, 0.1e9), "mlx5_1", -0.98, "was requested and hardly used"),
        ((4e9, 4e9, 2e9), "mlx5_2", None, "was not requested"),
    ],
)
def test_an_unused_requested_adapter_and_a_used_other_one_are_faults(
    carried: tuple[float, ...], device: str, effect: float | None, message: str
) -> None:
    (finding,) = explain(server_bytes(*carried), options=OPTIONS)
    assert (finding.rule, finding.subject, finding.severity) == (
        "hca_binding",
        Subject("server2", device=device),
        "fault",
    )
    assert message in finding.cause
    assert finding.effect == (None if effect is None else pytest.approx(effect))


def test_a_binding_without_counters_is_not_proven() -> None:
    findings = explain([], options={"servers": ["server2"], "servers_hcas": ["mlx5_0:1"]})
    assert [(f.severity, f.subject.host) for f in findings] == [("warning", "server2")]
    assert "no byte counters" in findings[0].cause


def test_adapters_that_carried_nothing_have_no_counters_at_all() -> None:
    """Only counters that grew are recorded. Counters of a port count for its adapter."""
    other: list[AnyRecord] = [measured("network.counters", "tx_bytes", 9e9, "server2", "eth0")]
    findings = explain(other, options=OPTIONS)
    assert {f.subject.device: f.severity for f in findings} == dict.fromkeys(
        ("mlx5_0", "mlx5_1", "eth0"), "fault"
    )
    port: list[AnyRecord] = [
        measured("network.counters", "port_xmit_data", 5e9, "server2", f"mlx5_{n}:1") for n in (0, 1)
    ]
    assert explain(port, options=OPTIONS) == []


def test_traffic_of_another_port_than_the_requested_one_is_a_fault() -> None:
    carried = {"mlx5_0:1": 9e9, "mlx5_0:2": 0.1e9, "mlx5_1:1": 9e9}
    records: list[AnyRecord] = [
        measured("network.counters", "port_xmit_data", value, "server2", port)
        for port, value in carried.items()
    ]
    options = {"servers": "server2", "servers_hcas": ["mlx5_0:2", "mlx5_1"]}
    findings = explain(records, options=options)
    assert {(f.subject.device, f.cause.partition(" on ")[2]) for f in findings} == {
        ("mlx5_0:2", "server2 was requested and hardly used"),
        ("mlx5_0:1", "server2 carried data and was not requested"),
    }


def test_a_network_interface_of_an_adapter_is_not_counted_twice() -> None:
    shadow: list[AnyRecord] = [measured("network.counters", "tx_bytes", 9e9, "server2", "ib0")]
    assert explain(server_bytes(5e9, 5e9) + shadow, options=OPTIONS) == []


def test_a_device_that_corrupts_copies_is_named_without_a_pair() -> None:
    on_gpu = Corruption(id=3, name="node.gpu_copy", subject=Subject(host="h1", device="gpu1"))
    (finding,) = explain([on_gpu])
    assert finding.cause == "gpu1 on h1: payloads did not arrive as they were sent (1 message)"
    assert (finding.side, finding.severity, finding.evidence) == ("node", "fault", [3])
    assert "None" not in " ".join(finding.details)
    both = explain([on_gpu, corruption("h1", "h2"), corruption("h1", "h3")])
    assert {f.side for f in both} == {"node", "transmit"}


def test_a_failed_rdma_transfer_is_a_fault_that_tells_which_sizes_arrived() -> None:
    records: list[AnyRecord] = []
    for identity, size in enumerate((2, 1024), 1):
        record = measured("node.rdma", "bandwidth", 1e9, "h1", "mlx5_0:1")
        record.id, record.params = identity, {"op": "write", "size": size}
        records.append(record)
    problem = "write of 64 KiB to h2 (mlx5_0:1) failed: transport retry counter exceeded (status 12)"
    for words in (problem, f"h1 gave up: {problem}"):
        failure = Failure(id=7, problem=words, subject=Subject(host="h1"))
        (finding,) = explain([*records, failure])
        assert finding.rule == "rdma_failed" and finding.severity == "fault" and finding.evidence == [7]
        assert finding.cause == (
            "write of 64 KiB to h2 (mlx5_0:1) failed: transport retry counter exceeded (status 12 of its completion)"
        )
        assert finding.details == ["transfers of 2 B, 1 KiB arrived before"]
        verdicts = judge(load_specification(find_specification("rdma")), [*records, failure, finding], ["h1"])
        assert overall(verdicts) == "FAIL"
    gone = Failure(id=7, problem="h2 (mlx5_0:1) has gone away")
    assert explain([*records, gone]) == []


@pytest.mark.parametrize(("share", "count"), [(0.0, 1), (0.999, 1), (1.0, 0), (1.02, 0)])
def test_rdma_payload_that_did_not_leave_the_adapter_is_a_fault(share: float, count: int) -> None:
    record = measured("node.rdma", "wire", share, "h1", "mlx5_0:1")
    record.params = {"direction": "sent", "peer_device": "mlx5_1:1"}
    findings = explain([record])
    assert [f.rule for f in findings] == ["rdma_wire"] * count
    assert all("h1 mlx5_0:1 sent" in f.cause and f.severity == "fault" for f in findings)
