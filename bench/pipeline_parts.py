#!/usr/bin/env python3
"""Where a pipeline's workers stand still: the bubble by its parts, from traces that `metrics.trace_file` wrote.

usage: pipeline_parts.py --alone TRACE.json --micro-batches N [--stages N] TRACE.json...

TRACE: a worker's of a pipeline on GPUs, in the order of ranks; --alone: of one process that trains the same steps with as
many parts. Both need windows of several steps (`metrics.sample_window_seconds`). Prints one JSON line. Shares of a step,
which add up to `stands_still`, what workers lose of the ideal step (that of one process, over the workers):

formula     (p - 1) / (m + p - 1)
slower      kernels of a stage take longer than those of one process: smaller products, or others beside them
uneven      the fullest stage has more than the mean of them
waits       the rest: messages that nothing hides, launches, the step's end

`busy_ms` by worker: time in which a compute stream was working. `comm_ms`: the same of its comm stream, and `beside` what of
that lies beside compute.
"""
import argparse
import collections
import json

from trace_overlap import intersection, length, union


def slices_of(path):
    """(begin, end, track, name) of the device's slices, in microseconds."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    found = []
    for e in events:
        track = tracks.get((e["pid"], e.get("tid")), "")
        if e["ph"] == "X" and track.startswith("cuda:"):
            found.append((e["ts"], e["ts"] + e["dur"], track.split(" ")[1], e["name"]))
    return sorted(found)


def longest_window(slices):
    """Without gaps of a quarter of a second, which lie between windows."""
    windows, end = [[]], None
    for one in slices:
        if end is not None and one[0] > end + 250e3:
            windows.append([])
        windows[-1].append(one)
        end = max(end or 0, one[1])
    return max(windows, key=lambda w: w[-1][1] - w[0][0] if w else 0)


def whole_steps(slices):
    """Slices of whole steps, their number and time: from one run of a node that runs once a step to another."""
    at = collections.defaultdict(list)
    for begin, _, track, name in slices:
        if track.startswith("compute"):
            at[name].append(begin)
    fewest = min((len(begins) for begins in at.values() if len(begins) > 2), default=0)
    if fewest == 0:
        raise SystemExit("a window of the trace has less than two steps: set metrics.sample_window_seconds")
    begins = next(b for b in at.values() if len(b) == fewest)
    inside = [s for s in slices if begins[0] <= s[0] < begins[-1]]
    return inside, len(begins) - 1, begins[-1] - begins[0]


def profile(path):
    return profile_of(*whole_steps(longest_window(slices_of(path))))


def profile_of(slices, steps, time):
    compute = union([(b, e) for b, e, track, _ in slices if track.startswith("compute")])
    comm = union([(b, e) for b, e, track, _ in slices if track == "comm"])
    nodes = collections.Counter()
    for begin, end, track, name in slices:
        if track.startswith("compute"):
            nodes[name] += end - begin
    return {"step_ms": time / steps / 1e3, "busy_ms": length(compute) / steps / 1e3, "comm_ms": length(comm) / steps / 1e3,
            "beside_ms": intersection(compute, comm) / steps / 1e3, "steps": steps,
            "nodes": {name: us / steps / 1e3 for name, us in nodes.items()}}


def parts_of(alone, stages, micro_batches, in_a_pipeline=None):
    """`alone`, `stages`: profiles. `in_a_pipeline`: stages of one group; else all are."""
    p = in_a_pipeline or len(stages)
    step = sum(s["step_ms"] for s in stages) / len(stages)
    busy = [s["busy_ms"] for s in stages]
    ideal = alone["step_ms"] / len(stages)
    mean, fullest = sum(busy) / len(busy), max(busy)
    formula = (p - 1) / (micro_batches + p - 1)
    still = 1 - ideal / step
    # Time, of a step: what one process takes of it, what stages take more, what the fullest takes more than that, and the
    # bubble of the fullest, which is a share of the busy time.
    slower, uneven = mean - ideal, fullest - mean
    waits = step - fullest / (1 - formula)
    line = {"step_ms": round(step, 2), "ideal_ms": round(ideal, 2), "stands_still": round(still, 3), "formula": round(formula, 3)}
    line.update({"bubble_ms": round(fullest * formula / (1 - formula), 2), "slower_ms": round(slower, 2),
                 "uneven_ms": round(uneven, 2), "waits_ms": round(waits, 2)})
    line["busy_ms"] = [round(b, 2) for b in busy]
    line["comm_ms"] = [round(s["comm_ms"], 2) for s in stages]
    line["beside_ms"] = [round(s["beside_ms"], 2) for s in stages]
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alone", required=True)
    parser.add_argument("--micro-batches", type=int, required=True)
    parser.add_argument("--stages", type=int, default=0, help="of a group; default: all workers")
    parser.add_argument("traces", nargs="+")
    args = parser.parse_args()
    stages = [profile(path) for path in args.traces]
    print(json.dumps({"bench": "pipeline_parts", **parts_of(profile(args.alone), stages, args.micro_batches, args.stages)}))


if __name__ == "__main__":
    main()
