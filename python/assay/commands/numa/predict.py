"""``assay numa predict``: the remote share of a recorded program on another topology."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from assay.commands.numa.runs import NUMA
from assay.commands.options import add_option
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_PASS
from assay.measure.numa import FOLDER, load_profiles
from assay.numa.analysis import format_processors, processes
from assay.numa.predict import Prediction, predict
from assay.numa.topology import Topology, topology_of
from assay.report.console import console
from assay.report.numa import show_prediction


def prepare_predict(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "predict",
        help="predict the remote share on another topology",
        description="Predicts the remote share of a program whose accesses were counted (assay numa cc) on another "
        "topology, an hwloc synthetic string or XML file: as it touches its memory, with a parallel first touch, "
        "and interleaved. A NUMA node without processors of its own holds memory alone.",
        examples=[
            Example("assay numa predict counted 'numa:4 core:8 pu:1'", "four nodes", "a run"),
            Example(
                "assay numa predict counted '[numa] pack:2 [numa] pu:8'",
                "a node of memory alone",
                "a run",
            ),
            Example(
                "assay numa predict counted machine.xml --spread --json",
                "of 'lstopo machine.xml' there",
                "a run",
            ),
        ],
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
    parser.add_argument(
        "topology", metavar="TOPOLOGY", help="hwloc synthetic string, or an XML file of lstopo"
    )
    parser.add_argument(
        "--spread",
        action="store_true",
        help="spread all threads over the processors; default: bound threads keep their processor",
    )
    add_option(parser, "--json")
    parser.set_defaults(sub_verb=predict_share)


def predict_share(args: argparse.Namespace) -> int:
    topology = topology_of(args.topology)
    run, _ = NUMA.profiles_of(args.run)
    recordings = processes(load_profiles(run.path / FOLDER))[0]
    prediction = predict(recordings, topology, args.spread)
    if args.json:
        print(json.dumps(_as_json(prediction, topology), indent=1))
    else:
        emulated = recordings[0].recording.process.emulated
        show_prediction(
            console(),
            prediction,
            {
                number: format_processors(processors)
                for number, processors in zip(topology.numbers, topology.processors, strict=True)
            },
            emulated,
        )
    return EXIT_PASS


def _as_json(prediction: Prediction, topology: Topology) -> dict[str, object]:
    return {
        "nodes": [list(processors) for processors in topology.processors],
        "numbers": list(topology.numbers),
        "recorded": prediction.recorded,
        "predicted": prediction.shares,
        "objects": prediction.objects,
    }
