#!/usr/bin/env python3
"""How much of a worker's communication its compute hides, from traces that `metrics.trace_file` wrote.

usage: trace_overlap.py TRACE.json [TRACE.json ...]

For each communication stream (comm, pull, push): time in which it was working (the union of its work and
asynchronous slices), and the share of that time in which a compute stream was working too. The first tenth of the
steps is left out (warm-up), and so is what lies behind the last training step. A worker on a GPU: the same for its
copies (h2d, d2h), over the sampled windows. Prints one JSON line a trace.
"""
import json
import sys


def union(intervals):
    """Sorted, disjoint intervals that cover the same time."""
    merged = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def length(intervals):
    return sum(end - begin for begin, end in intervals)


def intersection(a, b):
    """Time that two unions have in common."""
    i = j = 0
    total = 0.0
    while i < len(a) and j < len(b):
        total += max(0.0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return total


def report_device(path, tracks, events):
    inside = {}
    for e in events:
        name = tracks.get((e["pid"], e.get("tid")), "")
        if e["ph"] == "X" and name.startswith("cuda:"):
            stream = name.split(" ")[1]
            kind = "compute" if stream.startswith("compute") else stream
            inside.setdefault(kind, []).append((e["ts"], e["ts"] + e["dur"]))
    compute = union(inside.get("compute", []))
    result = {"trace": path, "compute_busy_ms": round(length(compute) / 1e3, 3)}
    for lane in ("h2d", "d2h", "comm"):
        if lane in inside:
            busy = union(inside[lane])
            result[lane] = {"busy_ms": round(length(busy) / 1e3, 3),
                            "hidden": round(intersection(busy, compute) / length(busy), 4)}
    return result


def report(path):
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    full = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    if any(name.startswith("cuda:") for name in full.values()):
        return report_device(path, full, events)
    tracks = {(e["pid"], e["tid"]): e["args"]["name"].split(" ")[0]
              for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    slices = [(tracks[(e["pid"], e["tid"])], e) for e in events if e["ph"] == "X" and e.get("cat") != "wait"]
    lanes = ("comm", "pull", "push")
    steps = [e["args"]["step"] for name, e in slices if name in lanes]
    if not steps:
        return {"trace": path, "communication": "none"}
    first = min(steps) + (max(steps) - min(steps)) // 10
    begin = min(e["ts"] for name, e in slices if name in lanes and e["args"]["step"] >= first)
    end = max(e["ts"] + e["dur"] for name, e in slices if name in lanes)
    inside = {}
    for name, e in slices:
        if begin <= e["ts"] and e["ts"] + e["dur"] <= end:
            kind = "compute" if name.startswith("compute") else name
            inside.setdefault(kind, []).append((e["ts"], e["ts"] + e["dur"]))
    compute = union(inside.get("compute", []))
    result = {"trace": path, "window_ms": round((end - begin) / 1e3, 3),
              "compute_busy": round(length(compute) / (end - begin), 4)}
    everything = []
    for lane in lanes:
        if lane not in inside:
            continue
        busy = union(inside[lane])
        everything += inside[lane]
        result[lane] = {"busy_ms": round(length(busy) / 1e3, 3),
                        "hidden": round(intersection(busy, compute) / length(busy), 4)}
    busy = union(everything)
    result["communication_hidden"] = round(intersection(busy, compute) / length(busy), 4)
    return result


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if len(sys.argv) > 1 else 2
    for path in sys.argv[1:]:
        print(json.dumps(report(path)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
