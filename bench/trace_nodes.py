#!/usr/bin/env python3
"""Which nodes a step of a GPU spends its time on, from a trace that `metrics.trace_file` wrote.

usage: trace_nodes.py [--most N] TRACE.json...

A window of the trace needs several steps (`metrics.sample_window_seconds`). For each trace: time of a step, how long a
compute stream and the comm stream worked in it, and the N nodes that took most, with ms, share of the step, and stream.
"""
import argparse
import collections
import re

import pipeline_parts


def kind_of(name):
    """Nodes of all layers and micro-batches alike, and streams of a kind."""
    return re.sub(r"\d+", "*", name)


def show(path, most):
    slices, steps, time = pipeline_parts.whole_steps(pipeline_parts.longest_window(pipeline_parts.slices_of(path)))
    whole = pipeline_parts.profile_of(slices, steps, time)
    print(f"{path}: {steps} steps of {whole['step_ms']:.3f} ms, compute {whole['busy_ms']:.3f}, comm {whole['comm_ms']:.3f}, "
          f"of that beside compute {whole['beside_ms']:.3f}")
    spent, count = collections.Counter(), collections.Counter()
    for begin, end, track, name in slices:
        key = (kind_of(track), kind_of(name))
        spent[key] += end - begin
        count[key] += 1
    for (track, name), us in spent.most_common(most):
        print(f"  {us / steps / 1e3:8.3f} ms {100 * us / time:5.1f} %  {count[track, name] / steps:6.1f} x  {track:9} {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=25)
    parser.add_argument("traces", nargs="+")
    args = parser.parse_args()
    for path in args.traces:
        try:
            show(path, args.most)
        except SystemExit as error:
            print(f"{path}: {error}")


if __name__ == "__main__":
    main()
