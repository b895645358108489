"""Binds ranks to adapters: the environment variables of each MPI, per rank, for the server segment only.

The variables are those of the MPIs' own documentation. An adapter that is an InfiniBand device
(``mlx5_0``) binds UCX or libfabric; a network interface (``eth0``) binds the TCP transports. The port
counters verify the binding after the run (assay.explain).
"""

from __future__ import annotations

import re

from assay.errors import UserError

_ADAPTER = re.compile(r"(?!\d+$)[A-Za-z0-9_.\-]+(:[1-9]\d?)?")
_SEPARATOR = re.compile(r":(?!\d+(?::|$))")  # not before a port


def parse_adapters(text: str) -> list[str]:
    """The adapters of --servers-hcas: names separated by ``:``, as the Network Sanitizer takes them, each with its port
    if that is not the first ("mlx5_0:2:mlx5_1:2" is "mlx5_0:2" and "mlx5_1:2")."""
    names = _SEPARATOR.split(text)
    for name in names:
        if not _ADAPTER.fullmatch(name) or (":" in name and is_interface(name)):
            raise UserError(
                f"--servers-hcas {text!r}: {name!r} is not an adapter's name", "write it like 'mlx5_0:mlx5_1'"
            )
    if len(set(names)) != len(names):
        raise UserError(f"--servers-hcas {text!r}: an adapter is named twice", "name each once")
    return names


def is_interface(adapter: str) -> bool:
    """A network interface by its name (eth0, enp1s0, p1p1, ib0, hsn0, bond0), not an RDMA device (mlx5_0, hfi1_0)."""
    return re.match(r"(eth|en|ib\d|bond|wl|br|veth|hsn|p\d+p\d+)", adapter) is not None


def binding(flavour: str, adapter: str) -> dict[str, str]:
    """The environment that binds a rank to one adapter, for the MPI of that engine flavour."""
    device, _, port = adapter.partition(":")
    if flavour == "openmpi":
        if is_interface(adapter):
            return {"OMPI_MCA_btl_tcp_if_include": adapter}
        return {"UCX_NET_DEVICES": f"{device}:{port or 1}"}
    if slingshot := re.fullmatch(
        r"(?:hsn|cxi)(\d+)", adapter
    ):  # Cray's MPI takes a number of adapters, for all local ranks
        mapping = {"MPICH_OFI_NIC_POLICY": "USER", "MPICH_OFI_NIC_MAPPING": f"{slingshot[1]}:0-255"}
        return {"FI_TCP_IFACE": adapter, **mapping} if is_interface(adapter) else mapping
    if is_interface(adapter):
        return {"FI_TCP_IFACE": adapter, "UCX_NET_DEVICES": adapter}
    return {
        "UCX_NET_DEVICES": f"{device}:{port or 1}",
        "MPIR_CVAR_CH4_OFI_PREF_NIC": device,
        "MPIR_CVAR_CH4_OFI_MAX_NICS": "1",
        "I_MPI_MULTIRAIL": "0",
        "MV2_IBA_HCA": device,
        "MV2_NUM_HCAS": "1",
        **({"MV2_DEFAULT_PORT": port} if port else {}),
    }
