"""Changes a SimGrid platform file (``assay simulate --nodes``, ``--set``): more hosts, other links.

The file is changed, not the model, so any SimGrid platform can be used. Clusters grow evenly; hosts that are
listed one by one cannot be multiplied, nor those of a torus, fat tree or dragonfly, which follow from its parameters.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from assay.errors import UserError
from assay.launch.platforms import expand_radical, platform_hosts, read_platform
from assay.model.platform import HEADER
from assay.records.foreign import is_plain


def change_platform(path: Path, hosts: int | None, settings: Sequence[str], folder: Path) -> Path:
    """The path of a platform with at least ``hosts`` hosts and each "ID.ATTRIBUTE=VALUE" of ``settings``.

    The file itself where nothing changes, else a changed copy in ``folder``.
    """
    count = len(platform_hosts(path))
    if not settings and (hosts is None or hosts <= count) and is_plain(path):
        return path
    root = read_platform(path)
    for setting in settings:
        _set(root, setting)
    if hosts is not None and hosts > count:
        _grow(root, path, hosts, count)
    changed = folder / "platform.xml"
    changed.write_text(HEADER + ET.tostring(root, encoding="unicode") + "\n")
    return changed


def _set(root: ET.Element, setting: str) -> None:
    target, separated, value = setting.partition("=")
    name, dotted, attribute = target.rpartition(".")
    if not separated or not dotted or not value:
        raise UserError(
            f"--set {setting}: expected ID.ATTRIBUTE=VALUE", "for example backbone.bandwidth=3GBps"
        )
    nodes = [node for node in root.iter() if node.get("id") == name and node.tag != "link_ctn"]
    if not nodes:
        links = [str(node.get("id")) for node in root.iter() if node.get("bandwidth") or node.get("bw")]
        some = ", ".join(links[:6]) + (", ..." if len(links) > 6 else "")
        raise UserError(f"--set {setting}: the platform has no '{name}'", f"choose one of {some}")
    for node in nodes:
        if attribute not in node.attrib:
            raise UserError(
                f"--set {setting}: {name} has no '{attribute}'", "it has: " + ", ".join(node.attrib)
            )
        node.set(attribute, value)


def _grow(root: ET.Element, path: Path, host_count: int, count: int) -> None:
    all_clusters = [node for node in root.iter() if node.tag in ("cluster", "cabinet")]
    clusters = [node for node in all_clusters if node.get("topology", "FLAT") == "FLAT"]
    if not clusters:
        reason = "each with its own links"
        if all_clusters:
            reason = f"as the topo_parameters of its {all_clusters[0].get('topology')} say"
        raise UserError(
            f"{path} has {count} hosts, {reason}: it cannot be enlarged",
            f"give --nodes {count} at most, or a platform of clusters (hosts that are alike)",
        )
    numbers = [expand_radical(str(node.get("radical")), path) for node in clusters]
    following = 1 + max(max(expand_radical(str(node.get("radical")), path)) for node in all_clusters)
    for extra in range(host_count - count):
        numbers[extra % len(clusters)].append(following + extra)
    for node, radical in zip(clusters, numbers, strict=True):
        node.set("radical", ",".join(map(str, radical)))
