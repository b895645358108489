"""Names that differ from those meant only by the leading zeros of their numbers, the domain, or capitals: n1 or
N01.x.org where the host is n01.

Tools of batch systems pad numbers and add domains, people often do not; a message that names the host saves a search.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ClusterShell.NodeSet import NodeSet

_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")


def meant(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Those of the ``known`` names that ``names`` are but for leading zeros, the domain or capitals, in their order."""
    known = list(dict.fromkeys(known))
    by_number = {_ZEROS.sub("", name): name for name in known}
    by_host: dict[str, list[str]] = {}
    for name in known:
        by_host.setdefault(_host(name), []).append(name)
    found = (by_number.get(_ZEROS.sub("", name)) or _in_domain(name, by_host) for name in names)
    return list(dict.fromkeys(name for name in found if name))


def _in_domain(name: str, by_host: dict[str, list[str]]) -> str:
    """The only known name that is ``name`` with a domain, without it, or in other letters; empty for none."""
    same = by_host.get(_host(name), [])
    is_like = len(same) == 1 and (
        same[0].lower() == name.lower() or _host(name) in (name.lower(), same[0].lower())
    )
    return same[0] if is_like else ""


def _host(name: str) -> str:
    """In small letters, without the domain. An address has none."""
    return name.lower() if re.fullmatch(r"[0-9.]+", name) else name.partition(".")[0].lower()


def did_you_mean(names: Iterable[str], known: Iterable[str], otherwise: str) -> str:
    """The fix for unknown ``names``; ``otherwise``: where none of them is like a known one."""
    found = meant(names, known)
    return f"did you mean {NodeSet.fromlist(found)}?" if found else otherwise
