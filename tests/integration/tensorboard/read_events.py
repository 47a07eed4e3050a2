#!/usr/bin/env python3
"""TensorBoard's own reader reads what a job wrote: scalars, histograms, the graph, hyper-parameters, the job's text.

read_events.py --braid BINARY. Exit code 77, which CTest takes for skipped, without the package tensorboard."""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.compat.proto.graph_pb2 import GraphDef
    from tensorboard.plugins.hparams import plugin_data_pb2
    from tensorboard.util import tensor_util
except ImportError as error:
    print(f"skipped: {error} (pip install -r tests/integration/requirements.txt, and BRAID_PYTHON)")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[3]
EVERYTHING = {"scalars": 0, "histograms": 0, "tensors": 0}  # 0 keeps all
faults = 0


def expect(what, holds, value=None):
    global faults
    print(f"{'ok  ' if holds else 'FAIL'} {what}" + ("" if holds else f": {value}"))
    faults += not holds


def train(braid, directory, *more):
    job = ROOT / "examples" / "jobs" / "wide_deep_generated.pbtxt"
    command = [braid, "train", "--job", job, "--run-dir", directory]
    for each in ["steps=60", "epochs=0", "evaluation.every_steps=20", "runtime.device=CPU", "checkpoint.every_steps=20"]:
        command += ["--set", each]
    subprocess.run([*command, *more], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)


def read(directory):
    events = EventAccumulator(str(directory), size_guidance=EVERYTHING)
    events.Reload()
    return events


def check_scalars(events, lines):
    tags = events.Tags()["scalars"]
    expect("scalars of steps", {"loss", "learning_rate", "examples_per_second"} <= set(tags), tags)
    losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
    drawn = events.Scalars("loss")
    expect("losses are those of metrics.jsonl", drawn and all(abs(e.value - losses[e.step]) < 1e-6 for e in drawn), drawn)
    expect("the last step is drawn", drawn[-1].step == max(losses), drawn[-1])
    times = [e.wall_time for e in drawn]
    expect("times grow", times == sorted(times) and times[0] > 1.6e9, times[:3])
    measured = {line["step"]: line["evaluation"] for line in lines if "evaluation" in line}
    for name in next(iter(measured.values())):
        shown = {e.step: e.value for e in events.Scalars(f"evaluation/{name}")}
        same = shown.keys() == measured.keys() and all(
            math.isclose(shown[step], measured[step][name], rel_tol=1e-5) for step in shown
        )
        expect(f"evaluation/{name} is that of metrics.jsonl", same, (shown, measured))


def check_rest(events):
    histograms = events.Tags()["distributions"] and events.Tags()["histograms"]
    expect("histograms of variables", len(histograms) >= 4, histograms)
    for tag in histograms[:3]:
        value = events.Histograms(tag)[-1].histogram_value
        counted = sum(value.bucket)
        expect(f"{tag}: buckets hold all values", counted == value.num and value.min <= value.max, (counted, value.num))
    graph = GraphDef.FromString(events.Graph().SerializeToString())
    names = {node.name for node in graph.node}
    inputs = {i.lstrip("^").split(":")[0] for node in graph.node for i in node.input}
    expect("the graph has nodes", len(names) > 20 and len(names) == len(graph.node), len(graph.node))
    expect("all inputs are nodes of it", inputs <= names, sorted(inputs - names)[:5])
    expect("nodes have their stream", any("compute" in node.device for node in graph.node))
    parameters = next((t for t in events.Tags()["tensors"] if "hparams" in t and "session_start" in t), None)
    expect("hyper-parameters", parameters is not None, events.Tags()["tensors"])
    data = plugin_data_pb2.HParamsPluginData.FromString(
        events.SummaryMetadata(parameters).plugin_data.content if parameters else b""
    )
    start = data.session_start_info.hparams
    expect("their values", start["optimizer"].string_value and start["learning_rate"].number_value > 0, dict(start))
    job = next((t for t in events.Tags()["tensors"] if t.startswith("job")), None)
    text = b"".join(tensor_util.make_ndarray(events.Tensors(job)[0].tensor_proto).ravel()) if job else b""
    expect("the job's text", b"global_batch_size" in text, text[:80])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--braid", required=True)
    braid = parser.parse_args().braid
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "runs" / "a"
        train(braid, run)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        events = read(run / "tensorboard")
        check_scalars(events, lines)
        check_rest(events)
        train(braid, run, "--resume", "--set", "steps=80")
        steps = [e.step for e in read(run / "tensorboard").Scalars("loss")]
        expect("a resumed run goes on with the curve", max(steps) == 79 and steps == sorted(steps), steps)
        elsewhere = pathlib.Path(folder) / "events"
        train(braid, pathlib.Path(folder) / "runs" / "b", "--set", f"metrics.tensorboard_dir={elsewhere}")
        expect("metrics.tensorboard_dir names another place", read(elsewhere).Tags()["scalars"] != [])
    print(f"{faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
