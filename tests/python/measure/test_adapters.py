"""Network adapters: how lists of them are parsed, and how ranks are bound to them."""

from __future__ import annotations

import pytest

from assay.errors import UserError
from assay.launch.launchers import Hydra, OpenMpi
from assay.launch.placement import REMOTE
from assay.measure.adapters import binding, parse_adapters
from assay.measure.network import NetworkRequest, rank_labels


def test_lists_of_adapters_are_separated_by_colons() -> None:
    assert parse_adapters("mlx5_0:mlx5_1") == ["mlx5_0", "mlx5_1"]
    assert parse_adapters("mlx5_0:2") == ["mlx5_0:2"]
    assert parse_adapters("mlx5_0:2:mlx5_1:mlx5_2:1") == ["mlx5_0:2", "mlx5_1", "mlx5_2:1"]
    assert parse_adapters("mlx5_0:1:mlx5_0:2") == ["mlx5_0:1", "mlx5_0:2"]
    for wrong in ("", "mlx5_0:", "mlx5 0", "a:a", "mlx5_0;reboot", "2", "mlx5_0:0", "mlx5_0:1:2", "eth0:1"):
        with pytest.raises(UserError, match="--servers-hcas"):
            parse_adapters(wrong)


def test_each_mpi_is_bound_by_its_own_variables() -> None:
    assert binding("openmpi", "mlx5_0") == {"UCX_NET_DEVICES": "mlx5_0:1"}
    assert binding("openmpi", "mlx5_0:2") == {"UCX_NET_DEVICES": "mlx5_0:2"}
    assert binding("mpich", "mlx5_0:2")["MPIR_CVAR_CH4_OFI_PREF_NIC"] == "mlx5_0"
    assert binding("openmpi", "eth1") == {"OMPI_MCA_btl_tcp_if_include": "eth1"}
    assert binding("mpich", "mlx5_0")["MPIR_CVAR_CH4_OFI_PREF_NIC"] == "mlx5_0"
    assert binding("mpich-wheel", "eth1")["FI_TCP_IFACE"] == "eth1"


def test_a_server_with_two_adapters_is_two_ranks_and_clients_are_not_bound() -> None:
    request = NetworkRequest(OpenMpi(), REMOTE, ["s1", "s2"], ["c1", "c2"], ["mlx5_0", "mlx5_1"])
    segments = request.segments()
    assert [(s.hosts, s.env.get("UCX_NET_DEVICES")) for s in segments] == [
        (["s1"], "mlx5_0:1"),
        (["s1"], "mlx5_1:1"),
        (["s2"], "mlx5_0:1"),
        (["s2"], "mlx5_1:1"),
        (["c1", "c2"], None),
    ]
    assert rank_labels(segments) == ["s1:0", "s1:1", "s2:0", "s2:1", "c1", "c2"]


def test_the_environment_of_a_segment_reaches_its_ranks_only() -> None:
    request = NetworkRequest(OpenMpi(), REMOTE, ["s1"], ["c1"], ["mlx5_0"])
    command = OpenMpi().command(REMOTE, request.segments(), ["probe"])
    server, _, client = " ".join(command).partition(" : ")
    assert "UCX_NET_DEVICES=mlx5_0:1 probe" in server and "-H s1" in server
    assert "UCX" not in client and client.endswith("-H c1 probe")


def test_hydra_has_one_host_list_with_the_ranks_of_each() -> None:
    request = NetworkRequest(Hydra("mpich", ["mpiexec"]), REMOTE, ["s1"], ["c1"], ["mlx5_0", "mlx5_1"])
    command = Hydra("mpich", ["sh"]).command(REMOTE, request.segments(), ["probe"])
    assert command.count("-hosts") == 1
    assert command[command.index("-hosts") + 1] == "s1:2,c1:1"
    assert [command[i + 1] for i, w in enumerate(command) if w == "-n"] == ["1", "1", "1"]
