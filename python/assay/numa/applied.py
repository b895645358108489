"""Placements that were applied to a run (``assay numa --apply``): the predicted and the measured remote shares."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from assay.errors import UserError
from assay.numa.advice import PLACEABLE_KINDS, Advice
from assay.numa.profile import Profile
from assay.records.decode import decoder
from assay.records.files import read_regular, replace_file
from assay.records.numa import NumaApplied, NumaProfile

NAME = "applied.json"


def save_applied(folder: Path, before: Profile, advice: Sequence[Advice]) -> None:
    rows = [
        NumaApplied(before.name(row.object), row.action, row.before, row.predicted, None, row.assumed)
        for row in advice
    ]
    replace_file(folder / NAME, msgspec.json.encode(rows))


_decode = decoder(list[NumaApplied])


def load_applied(folder: Path) -> list[NumaApplied]:
    """Empty in a run to which nothing was applied. Raises UserError."""
    path = folder / NAME
    try:
        rows: list[NumaApplied] = _decode(read_regular(path))
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError) as error:
        raise UserError(f"{path}: {error}", "record it again: assay numa --apply RUN -- PROGRAM") from None
    return rows


def measured(profile: NumaProfile, rows: Sequence[NumaApplied]) -> list[NumaApplied]:
    """The placements with the remote shares that the profile found for their objects."""
    return [msgspec.structs.replace(row, measured=_share(profile, row.name)) for row in rows]


def _share(profile: NumaProfile, name: str) -> float | None:
    known = remote = 0
    for profiled in profile.objects:
        if profiled.name != name or profiled.kind not in PLACEABLE_KINDS or profiled.accesses is None:
            continue
        cells = profiled.accesses
        for a, b, count in zip(cells.thread_node, cells.page_node, cells.count, strict=True):
            if min(a, b) >= 0:
                known += count
                remote += count if a != b else 0
    return remote / known if known else None
