"""A platform other than the one that was measured: more hosts, other links.

The file itself is changed, not the model, so that any platform of SimGrid will do. Clusters grow, each by as
many hosts as its share; hosts that are named one by one cannot be made more.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from assay.errors import UserError
from assay.launch.simulator import expand_radical, platform_hosts
from assay.model.platform import HEADER


def change_platform(path: Path, hosts: int | None, settings: Sequence[str], folder: Path) -> Path:
    """The platform with ``hosts`` hosts at least and "ID.ATTRIBUTE=VALUE" set; the file itself where nothing is
    asked of it, else a changed copy in ``folder``."""
    there = len(platform_hosts(path))
    if not settings and (hosts is None or hosts <= there):
        return path
    tree = ET.parse(path)
    for setting in settings:
        _set(tree.getroot(), setting)
    if hosts is not None and hosts > there:
        _grow(tree.getroot(), path, hosts, there)
    changed = folder / path.name
    changed.write_text(HEADER + ET.tostring(tree.getroot(), encoding="unicode") + "\n")
    return changed


def _set(root: ET.Element, setting: str) -> None:
    target, separated, value = setting.partition("=")
    name, dotted, attribute = target.rpartition(".")
    if not separated or not dotted or not value:
        raise UserError(f"--set {setting}: not ID.ATTRIBUTE=VALUE", "write it like backbone.bandwidth=3GBps")
    found = [node for node in root.iter() if node.get("id") == name and node.tag != "link_ctn"]
    if not found:
        known = [str(node.get("id")) for node in root.iter() if node.get("bandwidth") or node.get("bw")]
        some = ", ".join(known[:6]) + (", ..." if len(known) > 6 else "")
        raise UserError(f"--set {setting}: the platform has no '{name}'", f"there are: {some}")
    for node in found:
        if attribute not in node.attrib:
            raise UserError(
                f"--set {setting}: {name} has no '{attribute}'", "it has: " + ", ".join(node.attrib)
            )
        node.set(attribute, value)


def _grow(root: ET.Element, path: Path, wanted: int, there: int) -> None:
    clusters = [node for node in root.iter("cluster")]
    if not clusters:
        raise UserError(
            f"{path} has {there} hosts, each with links of its own: no more can be made of them",
            f"give --hosts {there} at most, or a platform of clusters (hosts that are alike)",
        )
    numbers = [expand_radical(str(node.get("radical")), path) for node in clusters]
    following = max(max(own) for own in numbers) + 1
    for extra in range(wanted - there):
        numbers[extra % len(clusters)].append(following + extra)
    for node, own in zip(clusters, numbers, strict=True):
        node.set("radical", ",".join(map(str, own)))
