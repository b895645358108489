"""The plan of RDMA ports (which port sends to which) for planted devices, and the parameters of a measurement's
sides."""

from __future__ import annotations

from typing import Any

import pytest

from assay.launch.placement import HERE, REMOTE
from assay.measure import rdma
from assay.measure.engine_processes import Side
from assay.measure.rdma import Endpoint, Pair, Port, measure_rdma, plan_ports, ports_of
from assay.records.schema import AnyRecord, Context, Scalar, Subject


def context(device: str, host: str = "n1", **facts: Scalar) -> Context:
    values = {key.replace("__", "."): value for key, value in facts.items()}
    planted: dict[str, Scalar] = {"rdma.state": "ACTIVE", "rdma.link_layer": "InfiniBand", **values}
    return Context(subject=Subject(host=host, device=device), facts=planted)


def planned_pairs(*contexts: AnyRecord) -> list[tuple[str, str, bool]]:
    pairs = plan_ports(ports_of(contexts, "n1"))
    return [(pair.sender, pair.receiver, pair.same_card) for pair in pairs]


def test_two_cards_send_to_each_other() -> None:
    first = context("mlx4_0:1", device__pci="0000:02:00.0", rdma__adapter="0002:c903:00e1:0003")
    second = context("mlx4_1:1", device__pci="0000:81:00.0", rdma__adapter="0002:c903:00e1:1003")
    assert planned_pairs(first, second) == [("mlx4_0:1", "mlx4_1:1", False), ("mlx4_1:1", "mlx4_0:1", False)]


def test_each_port_of_two_dual_port_cards_sends_and_receives() -> None:
    """The two devices of a card are functions of one slot, as mlx5 shows them."""
    cards = {"mlx5_0:1": "3b:00.0", "mlx5_1:1": "3b:00.1", "mlx5_2:1": "d8:00.0", "mlx5_3:1": "d8:00.1"}
    pairs = planned_pairs(*(context(device, device__pci=f"0000:{pci}") for device, pci in cards.items()))
    assert [sender for sender, _, _ in pairs] == list(cards)
    assert sorted(receiver for _, receiver, _ in pairs) == sorted(cards)
    for sender, receiver, same_card in pairs:
        assert not same_card
        assert cards[sender][:2] != cards[receiver][:2]


def test_two_ports_of_one_device_and_another_card() -> None:
    ports = [context(f"mlx4_0:{n}", device__pci="0000:02:00.0") for n in (1, 2)]
    other = context("mlx4_1:1", device__pci="0000:81:00.0")
    assert [(s, r) for s, r, _ in planned_pairs(*ports, other)] == [
        ("mlx4_0:1", "mlx4_1:1"),
        ("mlx4_0:2", "mlx4_1:1"),
        ("mlx4_1:1", "mlx4_0:1"),
    ]


@pytest.mark.parametrize(
    "facts",
    [
        [{"device__pci": "0000:3b:00.0"}, {"device__pci": "0000:3b:00.1"}],
        # One card in two slots, which have the same GUID.
        [
            {"device__pci": "0000:3b:00.0", "rdma__adapter": "b859:9f03:0011:2233"},
            {"device__pci": "0000:86:00.0", "rdma__adapter": "b859:9f03:0011:2233"},
        ],
    ],
)
def test_ports_of_one_card_are_paired_if_no_other_exists(facts: list[dict[str, Scalar]]) -> None:
    pairs = planned_pairs(context("mlx5_0:1", **facts[0]), context("mlx5_1:1", **facts[1]))
    assert pairs == [("mlx5_0:1", "mlx5_1:1", True), ("mlx5_1:1", "mlx5_0:1", True)]


def test_devices_without_a_card_do_not_count_as_one_card() -> None:
    """SoftRoCE devices have no PCI address. A GUID of zeros does not identify a card."""
    pairs = planned_pairs(*(context(f"rxe{n}:1", rdma__adapter="0000:0000:0000:0000") for n in (0, 1)))
    assert [same for _, _, same in pairs] == [False, False]


def test_ports_that_are_down_elsewhere_or_of_another_kind_are_left_out() -> None:
    active = context("mlx5_0:1", device__pci="0000:3b:00.0")
    down = context("mlx5_1:1", rdma__state="DOWN")
    elsewhere = context("mlx5_2:1", host="n2")
    ethernet = context("mlx5_3:1", rdma__link_layer="Ethernet")
    interface = Context(subject=Subject(host="n1", device="eth0"), facts={"net.mtu": 9000})
    assert planned_pairs(active, down, elsewhere, ethernet, interface) == []
    assert planned_pairs() == []


def test_ports_of_the_same_subnet_are_preferred() -> None:
    """Two separate rails: the subnets are not connected."""
    rails = [("fe80:0000:0000:0000", "mlx5_0:1", "3b"), ("fe80:0000:0000:0001", "mlx5_1:1", "5e")]
    rails += [("fe80:0000:0000:0001", "mlx5_2:1", "86"), ("fe80:0000:0000:0000", "mlx5_3:1", "d8")]
    pairs = planned_pairs(
        *(
            context(device, rdma__subnet=subnet, device__pci=f"0000:{bus}:00.0")
            for subnet, device, bus in rails
        )
    )
    assert [(s, r) for s, r, _ in pairs] == [
        ("mlx5_0:1", "mlx5_3:1"),
        ("mlx5_1:1", "mlx5_2:1"),
        ("mlx5_2:1", "mlx5_1:1"),
        ("mlx5_3:1", "mlx5_0:1"),
    ]


class RecordingSession:
    """Stands for a session. It records the two sides that it is asked to start."""

    def __init__(self) -> None:
        self.requests: list[tuple[Side, Side, dict[str, Any]]] = []

    def measure_pair(self, first: Side, other: Side, **options: Any) -> bool:
        self.requests.append((first, other, options))
        return True


def test_two_local_sides_use_a_free_port() -> None:
    session: Any = RecordingSession()
    params: dict[str, Scalar] = {
        "op": "write",
        "sizes": "65536",
        "gid_index": 3,
        "realtime": True,
        "timeout": 7,
    }
    assert measure_rdma(session, (HERE, "n1", "rxe0"), (HERE, "n1", "rxe1"), params, more_follow=True)
    ((listening, posting, options),) = session.requests
    port = listening.params["port"]
    assert 1024 <= int(port) <= 65535
    expected = {"port": port, "timeout": 7, "realtime": True, "gid_index": 3, "device": "rxe1", "mute": True}
    assert listening.params == {**expected, "listen": "127.0.0.1"}
    assert posting.params == {**params, "port": port, "device": "rxe0", "peer": "127.0.0.1"}
    assert options == {"silence_s": 37.0, "more_follow": True}


def test_the_receiver_listens_on_the_address_that_the_sender_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The receiver does not listen on other addresses."""

    def resolve(host: str, *_args: object, **_how: object) -> list[object]:
        assert host == "n2"
        return [(0, 0, 0, "", ("192.0.2.2", 0))]

    monkeypatch.setattr(rdma.socket, "getaddrinfo", resolve)
    session: Any = RecordingSession()
    measure_rdma(
        session, Endpoint(HERE, "n1", "mlx5_0"), Endpoint(REMOTE, "n2", "mlx5_3:1"), {"iterations": 10}
    )
    ((listening, posting, _),) = session.requests
    assert (listening.host, listening.site) == ("n2", REMOTE)
    assert listening.params == {"device": "mlx5_3:1", "mute": True, "listen": "192.0.2.2"}
    assert posting.params == {"iterations": 10, "device": "mlx5_0", "peer": "n2"}


def test_the_receiver_listens_on_the_given_interface() -> None:
    session: Any = RecordingSession()
    ends = Endpoint(HERE, "n1", "mlx5_0"), Endpoint(REMOTE, "n2", "mlx5_3")
    measure_rdma(session, *ends, {"listen": "ib0"})
    ((listening, posting, _),) = session.requests
    assert listening.params["listen"] == "ib0"
    assert "listen" not in posting.params


def test_pairs_are_compared_by_value_and_ports_of_a_device_share_a_card() -> None:
    assert Pair("a:1", "b:1", False) == Pair("a:1", "b:1", False)
    assert Port("a:1", True, "Ethernet").shares_card(Port("a:2", True, "Ethernet"))
