"""Host lists: ClusterShell's node sets, from options and files.

``client[1-3,10]``, ``rack[1-2]n[01-48]``, ``@group``, ``a,b`` and exclusions ``n[1-9]!n3`` are all read by
ClusterShell; its errors become one line with the mistake and the fix.
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

from ClusterShell.NodeSet import NodeSet, NodeSetException
from ClusterShell.NodeUtils import GroupResolverError, GroupSourceError

from assay.errors import UserError

EXAMPLE = "write it like 'client[1-3,10]' or 'a,b'"
MAX_HOSTS = 100_000  # the largest machines have some ten thousand
# A name that begins with "-" would be an option of the launcher, and other characters belong to its syntax. user@host
# and an IPv6 address with a scope are allowed.
_NAME = re.compile(r"[^\W_][\w.:@%-]*")
_RANGE = re.compile(r"(\d+)-(\d+)")


def parse_hosts(text: str, option: str) -> list[str]:
    """Returns the hosts of a node set in its order, each once. ``option`` names the source in a UserError."""
    where = f"{option} {text!r}" if len(text) <= 200 else f"{option} {text[:200]!r}..."
    if any(int(last[:20]) - int(first[:20]) >= MAX_HOSTS for first, last in _RANGE.findall(text)):
        raise UserError(f"{where}: more than {MAX_HOSTS} hosts", EXAMPLE)
    try:
        hosts = list(islice(NodeSet(text), MAX_HOSTS + 1))
    except NodeSetException as error:
        raise UserError(f"{where}: {_reason(error)}", EXAMPLE) from error
    except (GroupResolverError, GroupSourceError) as error:
        raise UserError(
            f"{where}: no group of hosts: {error}", "see /etc/clustershell/groups.conf"
        ) from error
    except (
        AssertionError,
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
    ):  # defects of ClusterShell's parser
        raise UserError(f"{where}: not a host list", EXAMPLE) from None
    if not hosts:
        raise UserError(f"{where}: no host in it", EXAMPLE)
    if len(hosts) > MAX_HOSTS:
        raise UserError(f"{where}: more than {MAX_HOSTS} hosts", EXAMPLE)
    for host in hosts:
        if not _NAME.fullmatch(host):
            raise UserError(f"{where}: {host!r} is not the name of a host", EXAMPLE)
    return hosts


def _reason(error: NodeSetException) -> str:
    text = str(error)
    return text[0].lower() + text[1:] if text else "not a host list"


def read_hosts(path: Path, option: str) -> list[str]:
    """Reads the hosts of a file: a name or node set on each line; ``#`` begins a comment. Raises UserError."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise UserError(f"{option} {path}: cannot be read: {error.strerror}", "check the path") from error
    except UnicodeDecodeError:
        raise UserError(f"{option} {path}: not a text file", "one host or node set a line") from None
    hosts: list[str] = []
    for number, line in enumerate(lines, 1):
        text = line.split("#", 1)[0].strip()
        if text:
            hosts += parse_hosts(text, f"{option} {path}:{number}:")
    if not hosts:
        raise UserError(
            f"{option} {path}: no host in it", "one host or node set a line, '#' begins a comment"
        )
    return hosts


def host_list(text: str | None, path: str | None, option: str) -> list[str]:
    """Returns the hosts of ``--option`` or ``--option-file``; empty if neither is given. Raises UserError."""
    if text is not None and path is not None:
        raise UserError(f"{option} and {option}-file are both given", "give one of them")
    if text is not None:
        hosts = parse_hosts(text, option)
    elif path is not None:
        hosts = read_hosts(Path(path), f"{option}-file")
    else:
        return []
    repeated = [h for i, h in enumerate(hosts) if h in hosts[:i]]
    if repeated:
        raise UserError(f"{option}: {repeated[0]} is named twice", "name each host once")
    return hosts


def refuse_shared(servers: list[str], clients: list[str]) -> None:
    """Raises UserError for a host that is both server and client: its traffic would stay in its memory."""
    shared = [host for host in servers if host in set(clients)]
    if shared:
        raise UserError(
            f"{fold(shared)} {'is' if len(shared) == 1 else 'are'} in both --servers and --clients",
            "give each host one role",
        )


def fold(hosts: list[str]) -> str:
    """Formats hosts as a node set: "h[0-7]"."""
    return str(NodeSet.fromlist(hosts))
