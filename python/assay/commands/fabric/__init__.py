"""``assay fabric``: InfiniBand fabrics by their topology and forwarding tables. One file per sub-verb."""

from __future__ import annotations

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
    modules = {
        "conflicts": "conflicts",
        "check": "check",
        "schedule": "schedule",
        "repair": "repair",
        "blame": "blame",
        "slurm": "slurm",
        "platform": "platform",
        "anonymise": "anonymise",
    }
