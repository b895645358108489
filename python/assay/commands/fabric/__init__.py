"""``assay fabric``: InfiniBand fabrics by their topology and forwarding tables. One file per sub-verb."""

from __future__ import annotations

from assay.commands.fabric.anonymise import prepare_anonymise
from assay.commands.fabric.blame import prepare_blame
from assay.commands.fabric.check import prepare_check
from assay.commands.fabric.conflicts import prepare_conflicts
from assay.commands.fabric.platform import prepare_platform
from assay.commands.fabric.repair import prepare_repair
from assay.commands.fabric.schedule import prepare_schedule
from assay.commands.fabric.slurm import prepare_slurm
from assay.commands.parser import Example
from assay.commands.sub_verbs import VerbGroup


class Fabric(VerbGroup):
    """Find conflicts and faults in the routing of an InfiniBand fabric. It reads what ibnetdiscover, dump_fts,
    OpenSM and ibdiagnet write, and sends nothing through the fabric: any copy of the files will do."""

    name = "fabric"
    notes = "See also the --help of each command."
    examples = [
        Example("assay fabric conflicts --fat-tree radix=36,nodes=45", "a model"),
        Example(
            "assay fabric check --fabric net.txt --tables fts.txt", "of ibnetdiscover, dump_fts", "a fabric"
        ),
        Example(
            "assay fabric anonymise --fabric net.txt --tables fts.txt --into shared",
            "to pass on",
            "a fabric",
        ),
    ]
    sub_verbs = (
        prepare_conflicts,
        prepare_check,
        prepare_schedule,
        prepare_repair,
        prepare_blame,
        prepare_slurm,
        prepare_platform,
        prepare_anonymise,
    )
