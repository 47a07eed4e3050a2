"""Makes attention.json beside this file: ragged attention and its gradients by plain PyTorch in float32 with a matrix of all
scores, masked as the HSTU reference masks. tests/engine/ops/ragged/ragged_attention_test.cc compares
braid.RaggedAttention. Needs PyTorch: python3 make_attention.py"""
import json
import pathlib

import torch
import torch.nn.functional as F


def numbers(tensor):
    return [float(f"{x:.9g}") for x in tensor.detach().reshape(-1).tolist()]


def mask_of(length, targets, causal, window, context):
    """As hstu's attention mask is made: all candidates have one place, behind the history, all context one in front."""
    place = torch.arange(length)
    last = length - targets
    if context > 0:
        place = (place - context + 1).clamp(min=0)
        last = last - context + 1
    place = place.clamp(max=last)
    distance = place[:, None] - place[None, :]
    sees = distance > 0 if causal else distance != 0
    if not causal:
        sees = sees & (torch.arange(length)[None, :] < length - targets)
    if window > 0:
        sees = sees & (distance.abs() <= window)
    if context > 0:
        sees = sees | ((place[:, None] == 0) & (place[None, :] < last))
    return sees | torch.eye(length, dtype=torch.bool)


def case(name, lengths, targets, heads, qk, v, generator, softmax=False, causal=True, window=0, context=0, max_length=0):
    offsets = [0] + torch.tensor(lengths).cumsum(0).tolist()
    scale = qk ** -0.5
    x = {n: torch.randn(offsets[-1], heads, w, generator=generator, requires_grad=n != "d_out")
         for n, w in (("q", qk), ("k", qk), ("v", v), ("d_out", v))}
    longest, rows = max_length or max(lengths), []
    for b, (begin, end) in enumerate(zip(offsets, offsets[1:])):
        q, k, values = (x[n][begin:end].transpose(0, 1) for n in "qkv")
        scores = scale * q @ k.transpose(1, 2)
        sees = mask_of(end - begin, targets[b] if targets else 0, causal, window, context)
        if softmax:
            weights = torch.softmax(scores.masked_fill(~sees, -torch.inf), -1)
        else:
            weights = F.silu(scores) / longest * sees
        rows.append((weights @ values).transpose(0, 1))
    out = torch.cat(rows)
    out.backward(x["d_out"])
    return {"name": name, "heads": heads, "qk_width": qk, "v_width": v, "offsets": offsets, "targets": targets, "softmax": softmax,
            "causal": causal, "window": window, "context": context, "max_length": max_length, "scale": scale,
            **{n: numbers(t) for n, t in x.items()}, "out": numbers(out),
            **{"d" + n: numbers(x[n].grad) for n in "qkv"}}


generator = torch.Generator().manual_seed(7)
cases = [case("silu, causal", [5, 0, 1, 10], [], 2, 4, 4, generator),
         case("silu, candidates", [7, 1, 9], [2, 1, 4], 2, 3, 4, generator, max_length=20),
         case("silu, context and window", [14, 6], [1, 2], 1, 4, 4, generator, context=3, window=4),
         case("softmax, candidates", [7, 1, 9], [2, 0, 4], 2, 3, 4, generator, softmax=True),
         case("softmax, both ways", [20], [3], 1, 4, 4, generator, softmax=True, causal=False)]
text = ",\n".join(json.dumps(each) for each in cases)
(pathlib.Path(__file__).parent / "attention.json").write_text(
    f'{{"made_with": "PyTorch {torch.__version__}", "cases": [\n{text}\n]}}\n')
