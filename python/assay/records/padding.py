"""Names that differ from those meant only by the leading zeros of their numbers: n1 where the host is n01.

Tools of batch systems pad numbers, people often do not; a message that names the host saves a search.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ClusterShell.NodeSet import NodeSet

_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")


def meant(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Those of the ``known`` names that ``names`` are but for leading zeros, in their order."""
    by_number = {_ZEROS.sub("", name): name for name in known}
    found = (by_number.get(_ZEROS.sub("", name)) for name in names)
    return list(dict.fromkeys(name for name in found if name))


def did_you_mean(names: Iterable[str], known: Iterable[str], otherwise: str) -> str:
    """The fix for unknown ``names``; ``otherwise``: where none of them is like a known one."""
    found = meant(names, known)
    return f"did you mean {NodeSet.fromlist(found)}?" if found else otherwise
