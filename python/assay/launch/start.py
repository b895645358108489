"""The start of an engine's ranks: who has not come yet, and who came long after the others. Times are seconds of any
clock that only grows."""

from __future__ import annotations

from collections.abc import Sequence

from assay.records.schema import LATE_FACT, Context, Failure, Hello, Subject, Waiting

LATE_S = 10.0  # after most others, for a host that the start waited for; on a busy machine ranks start seconds apart


class Start:
    """The ranks that have not come yet, and when each came. ``hosts``: of each rank."""

    def __init__(self, hosts: Sequence[str], now: float) -> None:
        self._hosts = hosts
        self._silent = set(range(len(hosts)))
        self._came_at: dict[int, float] = {}
        self._told = False
        self.is_reported = False  # by rank 0, that it waits
        self.first_at = now  # of the first rank

    @property
    def nobody(self) -> bool:
        """No rank has come."""
        return not self._came_at

    @property
    def awaited(self) -> list[str]:
        """The hosts that the start waits for."""
        return list(dict.fromkeys(self._hosts[rank] for rank in sorted(self._silent)))

    def add(self, message: Hello | Waiting, now: float) -> None:
        if isinstance(message, Hello):
            if self.nobody:
                self.first_at = now
            silent = self._silent - {message.rank}
        else:
            silent = {rank for rank in message.ranks if 0 <= rank < len(self._hosts)}
            self.is_reported = True
        self._came_at |= dict.fromkeys(self._silent - silent, now)
        self._silent, self._told = silent, False

    def late_hosts(self) -> list[Context]:
        """Once all are there: a context for each host that came long after most others."""
        if self._silent or self._told or not self._hosts:
            return []
        self._told = True
        usual = sorted(self._came_at.values())[(len(self._came_at) - 1) // 2]
        late: dict[str, float] = {}
        for rank, came_at in self._came_at.items():
            if rank < len(self._hosts) and came_at - usual >= LATE_S:
                host = self._hosts[rank]
                late[host] = max(late.get(host, 0.0), came_at - usual)
        return [
            Context(subject=Subject(host=host), facts={LATE_FACT: round(seconds, 1)})
            for host, seconds in late.items()
        ]


def name_awaited(failure: Failure, start: Start) -> None:
    """Names the hosts of the ranks that rank 0 waited for when the start failed: the engine knows ranks alone."""
    if not (start.is_reported and start.awaited):
        return
    failure.problem += f" (no answer from {', '.join(start.awaited)})"
    if len(start.awaited) == 1:
        failure.subject = Subject(host=start.awaited[0])
