"""Host lists: ClusterShell's node sets, from options and files.

``client[1-3,10]``, ``rack[1-2]n[01-48]``, ``@group``, ``a,b`` and exclusions ``n[1-9]!n3`` are all read by
ClusterShell; its errors become one line with the mistake and the fix. ClusterShell sorts; the order in which the hosts
are written is kept here, since it is that of the ranks.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice, product
from pathlib import Path

from ClusterShell.Defaults import config_paths
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException
from ClusterShell.NodeUtils import GroupResolverConfig, GroupResolverError, GroupSourceError

from assay.errors import UserError
from assay.launch.host_lines import (
    ADDRESS,
    ONE_A_LINE,
    HostLine,
    is_address,
    parse_line,
    refuse_table,
    without_brackets,
    without_slots,
)
from assay.records.foreign import Wanted, read_text
from assay.records.notes import tell

EXAMPLE = "write it like 'client[1-3,10]' or 'a,b'"
GROUPS_FILE = "see groups.conf of ClusterShell"
NO_MATCH = "a pattern, and no host of ClusterShell's groups matches it"
MAX_FIX = 200  # characters of a list to write: a longer one would be cut
MAX_HOSTS = 100_000  # the largest machines have some ten thousand
# A name that begins with "-" would be an option of the launcher, and other characters belong to its syntax. user@host
# and an IPv6 address with a scope are allowed.
_NAME = re.compile(r"[^\W_][\w.:@%-]*")
# A name in which ClusterShell would find nothing, and no bare range ("1-2", "n1..n4").
_PLAIN = re.compile(r"(?!.*\.\.)(?!(?:\d+\.)*\d+-(?:\d+\.)*\d+$)[^\W_][\w.:%-]*")
_RANGE = re.compile(r"(\d+)-(\d+)")
_BARE_RANGE = re.compile(r"((?:\d+\.)*)(\d+-\d+)")  # of numbers or addresses
_OPERAND = re.compile(r"(?:\[[^\[\]]*\]|[^,!&^\[])+")  # of the operators of node sets
_JOB_HOST = re.compile(r"(?:\d+\*)?([A-Za-z_][\w.-]*)(?:/[\d,*-]+)?")  # of LSF or PBS, with its slots
_OTHER_RANGE = re.compile(r"\[(\d+):(\d+)\]|\{(\d+)\.\.(\d+)\}")  # of Ansible's inventories and of the shell
# In the place of the hosts of a job that has none yet: squeue's reason, sacct, scontrol.
_NO_HOSTS_YET = re.compile(r"\([A-Za-z][\w, ]*\)|None assigned", re.IGNORECASE)
_BRACKET = re.compile(r"\[([0-9,/-]+)\]")
_BARE_ADDRESSES = re.compile(r"(?:\d+\.)+\d+-(?:\d+\.)+\d+")  # the first and the last of a range
_ADDRESSES = re.compile(r"((?:\d+\.){3})(\d+)-\1(\d+)")  # of one network
_CONDOR_SLOT = re.compile(r"slot\d+(?:_\d+)?@(.+)")
_NUMBERS = re.compile(r"\[[^\]]*\]|\d+")
FILE = Wanted("a host file", ONE_A_LINE)
# Without the file in the folder of Python, where ClusterShell's wheel installs groups of hosts that do not exist.
_GROUPS = GroupResolverConfig(
    [path for path in config_paths("groups.conf") if not path.startswith(f"{sys.prefix}/etc/")],
    set("@,!&^*"),
)


def parse_hosts(text: str, option: str) -> list[str]:
    """Returns the hosts of a node set in the order in which they are written, each once. ``option`` names the source in
    a UserError."""
    where = f"{option} {text!r}" if len(text) <= 200 else f"{option} {text[:200]!r}..."
    slots = re.search(ADDRESS.pattern + r":\d+", text)
    if slots:
        raise UserError(f"{option} {slots[0]}: a number of slots", f"write [{slots[1]}]")
    _refuse_hosts_of_a_job(text, where)
    if _NO_HOSTS_YET.fullmatch(text.strip()):
        raise UserError(
            f"{where}: what Slurm prints for a job without hosts", "give those of a job that runs"
        )
    if other := _OTHER_RANGE.search(text):
        written = _OTHER_RANGE.sub(lambda match: "[{}-{}]".format(*filter(None, match.groups())), text)
        raise UserError(f"{where}: '{other[0]}' is a range in another notation", f"write {written}")
    text = ADDRESS.sub(lambda match: without_brackets(match[0]), text)
    parts = [part.strip() for part in text.split(",")]
    is_plain = all(map(_PLAIN.fullmatch, parts))
    hosts = list(dict.fromkeys(parts)) if is_plain else _expand(text, where)
    if not hosts and re.search(r"[*?]", text):
        raise UserError(f"{where}: {NO_MATCH}", EXAMPLE)
    if not hosts:
        raise UserError(f"{where}: no host in it", EXAMPLE)
    if len(hosts) > MAX_HOSTS:
        raise UserError(f"{where}: more than {MAX_HOSTS} hosts", EXAMPLE)
    for host in hosts:
        if _BARE_ADDRESSES.fullmatch(host.partition(":")[0]):
            raise _without_brackets(host, where)
        if ":" in host and (name := without_slots(host)) != host:
            raise UserError(f"{option} {host}: a number of slots", f"write {name}")
        if slot := _CONDOR_SLOT.fullmatch(host):  # those of one host would be several
            raise UserError(f"{where}: '{host}' is a slot of HTCondor", f"write {slot[1]}")
        name = host.rpartition("@")[2]
        if (":" in host or "%" in name) and not _is_ipv6(name):
            raise UserError(f"{where}: '{host}' is not the name of a host", EXAMPLE)
        if not _NAME.fullmatch(host) or ".." in host or _BARE_RANGE.fullmatch(host):
            raise _no_name(host, where, text)
    return hosts


def _without_brackets(host: str, where: str) -> UserError:
    addresses = _ADDRESSES.fullmatch(host)
    is_range = addresses is not None and int(addresses[2]) < int(addresses[3])
    fix = (
        "write {}[{}-{}]".format(*addresses.groups()) if addresses and is_range else "write 10.0.[0-1].[1-9]"
    )
    return UserError(f"{where}: '{host}' is a range without brackets", fix)


def _is_ipv6(text: str) -> bool:
    return ":" in text and is_address(text)


def _refuse_hosts_of_a_job(text: str, where: str) -> None:
    """Raises UserError for hosts as LSF ("4*n1:4*n2", "n1:n1:n2", "n1 4 n2 4") and PBS ("n1/0*4+n2/1") print them for a
    job. "*" would be a pattern, "n1:n1:n2" one name, and a number of slots, too."""
    words = text.split()
    words = (
        words[len(words) % 2 :] if words and words[0].isdigit() else words
    )  # CCP_NODES begins with a number
    if words and len(words) % 2 == 0 and all(map(str.isdigit, words[1::2])):
        written = ",".join(dict.fromkeys(words[::2]))
        if not re.search(r"[^\w.,-]|^\d+(,|$)", written) and len(written) <= MAX_FIX:
            raise UserError(f"{where}: hosts of a job with their slots", f"write {written}")
    found = [match for part in re.split("[:+]", text) if (match := _JOB_HOST.fullmatch(part))]
    names = list(dict.fromkeys(match[1] for match in found))
    if len(found) <= text.count(":") + text.count("+") or text == names[0] or is_address(text):
        return
    raise UserError(f"{where}: hosts of a job as LSF or PBS prints them", f"write {','.join(names)}")


def _no_name(host: str, where: str, text: str) -> UserError:
    """Why a part of a list is no host. ``text``: the whole list."""
    words = host.split()
    if len(words) > 1 and all(_NAME.fullmatch(word) and not word.endswith(":") for word in words):
        joined = ",".join(dict.fromkeys(word.strip(",") for word in text.split()))
        if len(set(_NUMBERS.sub("", joined).split(","))) > 1:  # a role, a count or a key may be among them
            return UserError(
                f"{where}: blanks between names", "write the hosts alone, with a comma between them"
            )
        return UserError(
            f"{where}: blanks between names",
            f"write {joined}" if len(joined) <= MAX_FIX else "write a comma between them",
        )
    if bare := _BARE_RANGE.fullmatch(host):
        if re.fullmatch(r"[\d,-]+", text) and len(text) <= MAX_FIX:  # numbers of nodes, as Cobalt's
            return UserError(f"{where}: '{host}' is a range without brackets", f"write [{text}]")
        return UserError(f"{where}: '{host}' is a range without brackets", f"write {bare[1]}[{bare[2]}]")
    return UserError(f"{where}: {host!r} is not the name of a host", EXAMPLE)


def _expand(text: str, where: str) -> list[str]:
    """The hosts that ClusterShell finds, in the order of the text."""
    if any(int(last[:20]) - int(first[:20]) >= MAX_HOSTS for first, last in _RANGE.findall(text)):
        raise UserError(f"{where}: more than {MAX_HOSTS} hosts", EXAMPLE)
    try:
        found = list(islice(NodeSet(text, resolver=_GROUPS), MAX_HOSTS + 1))
        for part in _OPERAND.findall(text):
            _refuse_without_hosts(part.strip(), where)
        if len(found) > MAX_HOSTS:
            return found
        written = chain.from_iterable(map(_in_order, _OPERAND.findall(text))) if "," in text else found
        order = dict.fromkeys(islice(written, 2 * MAX_HOSTS))
    except NodeSetException as error:
        if isinstance(error.__context__, RecursionError):
            raise UserError(f"{where}: a group of hosts that holds itself", GROUPS_FILE) from error
        raise UserError(f"{where}: {_reason(error)}", EXAMPLE) from error
    except (GroupResolverError, GroupSourceError) as error:
        if re.search(r"[*?]", text):
            raise UserError(f"{where}: {NO_MATCH}", EXAMPLE) from error
        unknown = "is defined here" if str(error) == "<default>" else f"is called {error}"
        raise UserError(f"{where}: no group of hosts {unknown}", GROUPS_FILE) from error
    except (
        AssertionError,
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
    ):  # defects of ClusterShell's parser
        raise UserError(f"{where}: not a host list", EXAMPLE) from None
    members = set(found)
    return list(dict.fromkeys([*(host for host in order if host in members), *found]))


def _refuse_without_hosts(part: str, where: str) -> None:
    """Raises UserError for a group or pattern without hosts: ClusterShell leaves it out, and what it was to add or to
    exclude is missed in silence."""
    if not re.search(r"^@|[*?]", part):
        return
    names = NodeSet(part[1:], resolver=RESOLVER_NOGROUP) if part.startswith("@") and "[" in part else ()
    for name in [f"@{name}" for name in names] or [part]:
        if not NodeSet(name, resolver=_GROUPS):
            problem = NO_MATCH if re.search(r"[*?]", name) else "no such group of hosts, or none in it"
            raise UserError(f"{where}: {name}: {problem}", GROUPS_FILE)


def _in_order(part: str) -> Iterator[str]:
    """The hosts of a node set without operators: "r[2,1]n[0-1]" is r2n0, r2n1, r1n0, r1n1."""
    fields = _BRACKET.split(part.strip())  # names and lists of numbers in turn
    if len(fields) == 1:
        return iter(NodeSet(part, resolver=_GROUPS) if part.strip().startswith("@") else fields)
    choices = [
        [
            number
            for item in field.split(",")
            for number in ([item] if item.isdigit() else NodeSet(f"[{item}]"))
        ]
        if index % 2
        else [field]
        for index, field in enumerate(fields)
    ]
    return map("".join, product(*choices))


def _reason(error: NodeSetException) -> str:
    text = str(error)
    return text[0].lower() + text[1:] if text else "not a host list"


def read_hosts(path: Path, option: str) -> list[str]:
    """Reads the hosts of a file in its order: lines of ``host_lines``; ``#`` begins a comment. Raises UserError."""
    hosts: list[str] = []
    names: Counter[str] = Counter()  # of lines with one name, of which batch systems write one for each slot
    slots: Counter[str] = Counter()
    has_slots = False
    for number, line in enumerate(read_text(path, FILE).splitlines(), 1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        is_plain = not re.search("[:%]", text) and _PLAIN.fullmatch(text)
        where = f"{option} {path}:{number}:"
        if not (is_plain and names):
            refuse_table(text, where, not names)
        listed = HostLine(text, False) if is_plain else parse_line(text, where)
        has_slots |= listed.has_slots
        names[listed.hosts] += 1
        if names[listed.hosts] == 1:
            hosts += [text] if is_plain else parse_hosts(listed.hosts, where)
        for name, count in zip(listed.hosts.split(","), listed.slots or (1,), strict=False):
            slots[name] += count
    if not hosts:
        raise UserError(
            f"{option} {path}: no host in it", "one host or node set a line, '#' begins a comment"
        )
    if has_slots or names.total() > len(names):
        tell(f"{path}: numbers of slots are not used, Assay places its own ranks; {len(hosts)} hosts")
    _name_launch_node(path, option, hosts, [slots[host] for host in hosts])
    return hosts


def _name_launch_node(path: Path, option: str, hosts: list[str], slots: list[int]) -> None:
    """Says that the first host may be the node that a job's script runs on, as LSF lists it: it has one slot, and the
    others have more. Raises UserError where the file is that of this job of LSF: no rank may run there."""
    (first, *others), least = hosts, min(slots[1:], default=0)
    if slots[0] != 1 or least < 2:
        return
    own = os.environ.get("LSB_DJOB_HOSTFILE")
    if own is not None and path.resolve() == Path(own).resolve():
        raise UserError(
            f"{option} {path}: {first} is there once, each other host {least} times or more: it looks like LSF's "
            "launch node, which is no compute node",
            f"write {option.removesuffix('-file')} '{fold(others)}', with {first} if it is one",
        )
    if least == max(slots[1:]):  # unequal ones are of a cluster whose hosts differ
        tell(f"{path}: {first} has one slot, the others {least} each: is it the job's launch node?")


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
    if len(set(hosts)) < len(hosts):
        repeated = next(host for host, count in Counter(hosts).items() if count > 1)
        where = option if path is None else f"{option}-file {path}"
        raise UserError(f"{where}: {repeated} is named twice", "name each host once")
    return hosts


def refuse_shared(servers: list[str], clients: list[str]) -> None:
    """Raises UserError for a host that is both server and client: its traffic would stay in its memory."""
    members = set(clients)
    shared = [host for host in servers if host in members]
    if shared:
        raise UserError(
            f"{fold(shared)} {'is' if len(shared) == 1 else 'are'} in both --servers and --clients",
            "give each host one role",
        )


def fold(hosts: list[str]) -> str:
    """Formats hosts as a node set: "h[0-7]"."""
    return str(NodeSet.fromlist(hosts))
