#!/usr/bin/env python3
"""Draws the streams of a plan as SVG: a bar a node at its modelled time, an arrow a wait between streams.

    braid graph plan --job examples/jobs/mmoe_generated.pbtxt --streams 3 --policy COST \\
        --workers 2 --set strategy.kind=PS | python3 docs/pictures/draw_step.py > docs/pictures/step.svg

A node starts when the one before it on its stream is done, and what it waits for. What waits themselves cost, and waits on
the step before, are left out, so the step of the picture is a little shorter than the plan's. The picture has colours of its
own for light and for dark pages.
"""

import re
import sys
from html import escape

NODE = re.compile(r"^ +([\d.]+) us  (\S+) '(.+)'$")
WAIT = re.compile(r"^ +wait for '(.+)' on (\w+)(, step before)?$")
STREAM = re.compile(r"^(\w+)$")

LEFT, RIGHT, TOP, LANE, BAR, WIDTH = 84, 16, 62, 46, 26, 960
KINDS = ["forward", "backward", "update", "exchange"]
NAMES = {"exchange": "pull and push"}

STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de } .text { fill: #1f2328 } .faint { fill: #59636e } .inside { fill: #ffffff }
  .lane { stroke: #d0d7de } .wait { stroke: #59636e; fill: none } .head { fill: #59636e }
  .forward { fill: #0860ca } .backward { fill: #8a4600 } .update { fill: #116329 } .exchange { fill: #6639ba }
  rect.bar { stroke: #ffffff; stroke-width: 0.6 }
  text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d } .text { fill: #f0f6fc } .faint { fill: #9198a1 } .inside { fill: #0d1117 }
    .lane { stroke: #3d444d } .wait { stroke: #9198a1 } .head { fill: #9198a1 }
    .forward { fill: #79c0ff } .backward { fill: #ffa657 } .update { fill: #7ee787 } .exchange { fill: #d2a8ff }
    rect.bar { stroke: #0d1117 }
  }
"""


def read_plan(lines):
    """stream -> [(name, op, microseconds, names that it waits for)], and the line with the modelled times."""
    streams, stream, waits, summary = {}, None, [], ""
    for line in lines:
        line = line.rstrip("\n")
        if line.startswith("time (modelled)"):
            summary = line
        if STREAM.match(line):
            stream, waits = streams.setdefault(line, []), []
        elif not line or not line[0].isspace():
            stream = None
        elif stream is not None and (wait := WAIT.match(line)):
            if not wait[3]:
                waits.append(wait[1])
        elif stream is not None and (node := NODE.match(line)):
            stream.append((node[3], node[2], float(node[1]), waits))
            waits = []
    if not streams or not any(streams.values()):
        sys.exit("no plan on the standard input: pipe `braid graph plan` into this")
    return streams, summary


def times_of(streams):
    """name -> (start, end); every wait must be for a node that the plan has."""
    times, next_node, clock = {}, {name: 0 for name in streams}, {name: 0.0 for name in streams}
    moved = True
    while moved:
        moved = False
        for name, nodes in streams.items():
            while next_node[name] < len(nodes):
                node, _, cost, waits = nodes[next_node[name]]
                if any(other not in times for other in waits):
                    break
                start = max([clock[name], *(times[other][1] for other in waits)])
                times[node] = (start, start + cost)
                clock[name], moved = start + cost, True
                next_node[name] += 1
    stuck = [nodes[next_node[name]][0] for name, nodes in streams.items() if next_node[name] < len(nodes)]
    if stuck:
        sys.exit(f"'{stuck[0]}' waits for what the plan does not have")
    return times


def kind_of(stream, node):
    if not stream.startswith("compute"):
        return "exchange"
    return "backward" if node.startswith("gradients/") else "update" if node.startswith("update/") else "forward"


def label_of(node):
    """What fits into a bar: 'expert0', not 'gradients/expert0/layer0/MatMul/MatMul'."""
    parts = [part for part in node.split("/") if part not in ("gradients", "update")]
    return parts[-1].rstrip("0123456789") if parts[0] == "ps" else parts[0].replace("_task", "")


def draw(streams, times, summary):
    end = max(stop for _, stop in times.values())
    height = TOP + LANE * len(streams) + 46
    x = lambda us: LEFT + us * (WIDTH - LEFT - RIGHT) / end  # noqa: E731
    row = {name: TOP + LANE * i for i, name in enumerate(streams)}
    stream_of = {node: name for name, nodes in streams.items() for node, *_ in nodes}
    spread = ", ".join(f"{name} {len(nodes)} nodes" for name, nodes in streams.items())
    modelled = re.search(r"step ([\d.]+) us, ([\d.]+) us on one compute stream", summary)
    saying = f"One step over {len(streams)} streams"
    if modelled:
        saying += f": {float(modelled[1]):.0f} us modelled, {float(modelled[2]):.0f} us on one compute stream"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="t d">',
        f"<title id=\"t\">{saying}</title>",
        f"<desc id=\"d\">Bars are nodes at their modelled times, arrows are waits between streams. {spread}.</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
        f'<text class="text" x="16" y="26" font-weight="bold">{saying}</text>',
    ]
    at = 16
    there = {kind_of(name, node) for name, nodes in streams.items() for node, *_ in nodes}
    for kind in [kind for kind in KINDS if kind in there]:
        name = NAMES.get(kind, kind)
        out.append(f'<rect class="{kind}" x="{at}" y="37" width="12" height="12" rx="2"/>')
        out.append(f'<text class="faint" x="{at + 17}" y="47">{name}</text>')
        at += 40 + 7 * len(name)
    out.append(f'<path class="wait" d="M{at} 43h22"/><path class="head" d="M{at + 28} 43l-7 -3v6z"/>')
    out.append(f'<text class="faint" x="{at + 34}" y="47">wait for an event</text>')
    for name, y in row.items():
        middle = y + BAR / 2
        out.append(f'<text class="text" x="16" y="{middle + 4}">{name}</text>')
        out.append(f'<path class="lane" d="M{LEFT} {middle}H{WIDTH - RIGHT}"/>')
    for name, nodes in streams.items():
        for node, op, cost, _ in nodes:
            start, stop = times[node]
            width = x(stop) - x(start)
            out.append(
                f'<rect class="bar {kind_of(name, node)}" x="{x(start):.1f}" y="{row[name]}" width="{max(width, 0.6):.1f}" '
                f'height="{BAR}" rx="1.5"><title>{escape(op)} {escape(node)}: {cost:g} us</title></rect>'
            )
            label = label_of(node)
            if 6.6 * len(label) + 4 < width:
                out.append(f'<text class="inside" x="{(x(start) + x(stop)) / 2:.1f}" y="{row[name] + BAR / 2 + 4}" '
                           f'text-anchor="middle">{escape(label)}</text>')
    for name, nodes in streams.items():
        for node, _, _, waits in nodes:
            for other in waits:
                down = row[name] > row[stream_of[other]]
                from_x, to_x = x(times[other][1]), x(times[node][0])
                from_y = row[stream_of[other]] + (BAR if down else 0)
                to_y = row[name] + (0 if down else BAR)
                tip = 5 if down else -5
                out.append(f'<path class="wait" d="M{from_x:.1f} {from_y}L{to_x:.1f} {to_y - tip}"/>')
                out.append(f'<path class="head" d="M{to_x:.1f} {to_y}l-2.5 {-tip}h5z"/>')
    bottom = TOP + LANE * len(streams) + 2
    step = next(step for step in (10, 20, 50, 100, 200, 500, 1000, 10**9) if end / step <= 10)
    for us in range(0, int(end) + 1, step):
        out.append(f'<path class="lane" d="M{x(us):.1f} {bottom - 4}v6"/>')
        out.append(f'<text class="faint" x="{x(us):.1f}" y="{bottom + 18}" text-anchor="middle">{us}</text>')
    out.append(f'<text class="faint" x="{WIDTH - RIGHT}" y="{bottom + 34}" text-anchor="end">microseconds, modelled</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    if sys.stdin.isatty():
        sys.exit(__doc__)
    streams, summary = read_plan(sys.stdin)
    sys.stdout.write(draw(streams, times_of(streams), summary))


if __name__ == "__main__":
    main()
