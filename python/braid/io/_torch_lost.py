"""What torch.export does not keep of a program's gradients, found before it is converted.

Export records what an autograd.Function computes forwards, as the ops of its forward, and nothing of its backward: such a
program would train by other gradients without a word. The same holds for checkpoint(use_reentrant=True), whose forward
runs without gradients. Both are found by the places that export keeps of each node.
"""

import ast
import functools
import linecache
import os
import re
import warnings

import torch

from braid.io._aten import TORCH, place_of

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_FUNCTION = ("torch.export keeps what {} computes, but not its backward: its gradient would be another. Write "
             "y + (f(x) - y).detach(), which has the value of f(x) and the gradient of y")
_CHECKPOINT = "torch.export loses gradients with use_reentrant=True: checkpoint(..., use_reentrant=False)"
# Ops whose argument of that number says whether the program is in training.
_MODES = {"aten.dropout.default": 2, "aten.dropout_.default": 2, "aten.feature_dropout.default": 2,
          "aten.alpha_dropout.default": 2, "aten.batch_norm.default": 5, "aten.native_dropout.default": 2}


def frames_of(node):
    """(file, line, function, text of the line) of each place that made a node, the outermost first."""
    made, lines = [], (node.stack_trace or node.meta.get("stack_trace") or "").splitlines()
    for i, each in enumerate(lines):
        found = _FRAME.search(each)
        if found:
            text = lines[i + 1].strip() if i + 1 < len(lines) and not _FRAME.search(lines[i + 1]) else ""
            made.append((found["file"], int(found["line"]), found["name"], text))
    return made


@functools.lru_cache(maxsize=64)
def _functions_in(file):
    """[(first line, last line, class)] of the static `forward` of each class that has a `backward` or a base of that
    name; empty where the file is not there."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return []
    made = []
    for kind in (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)):
        methods = {each.name: each for each in kind.body if isinstance(each, ast.FunctionDef)}
        is_function = "backward" in methods or any("Function" in ast.unparse(each) for each in kind.bases)
        forward = methods.get("forward")
        if is_function and forward and any("staticmethod" in ast.unparse(each) for each in forward.decorator_list):
            made.append((forward.lineno, forward.end_lineno, kind.name))
    return made


def _applied(text):
    found = re.search(r"(\w+)\.apply\(", text)
    return found and found[1]


def _function_of(node, frames):
    """The name of the autograd.Function that a node is a part of, or None."""
    for i, (file, line, name, _) in enumerate(frames):
        if file.startswith(TORCH) or name != "forward":
            continue
        within = next((kind for first, last, kind in _functions_in(file) if first <= line <= last), None)
        within = within or (_applied(frames[i - 1][3]) if i else None)
        if within:
            return within
    # A Function that returns what it was given leaves a view of it alone.
    is_applied = any("autograd_function_apply" in text for *_, text in frames)  # within torch.cond
    is_alias = str(node.target) == "aten.view_as.default" and node.args[0] is node.args[1]
    if is_alias or is_applied or any(each[0] == "autograd.function" for each in node.meta.get("source_fn_stack", ())):
        return next((each for each in (_applied(frame[3]) for frame in reversed(frames)) if each), "an autograd.Function")
    return None


def _is_reentrant(frames):
    return any(file == os.path.join(TORCH, "utils", "checkpoint.py") and name == "forward" for file, _, name, _ in frames)


def _where(node):
    return f"node '{node.name}'{place_of(node)}"


def lost_gradients(program, inputs=False):
    """A line for each autograd.Function and checkpoint that trained parameters go through, or the program's inputs."""
    trained = {spec.arg.name for spec in program.graph_signature.input_specs if inputs or spec.kind.name == "PARAMETER"
               and program.state_dict[spec.target].requires_grad}
    said = {}
    _walk(program.graph_module, trained, said)
    return list(said.values())


def _walk(module, trained, said):
    """Into `said` what a graph whose placeholders of these names learn has lost, and the graphs within it."""
    learns = set()
    for node in module.graph.nodes:
        if node.op == "placeholder" and node.name in trained:
            learns.add(node)
        if node.op != "call_function" or not any(each in learns for each in node.all_input_nodes):
            continue
        for part in [getattr(module, each.target, None) for each in node.all_input_nodes if each.op == "get_attr"]:
            if isinstance(part, torch.fx.GraphModule):
                _walk(part, {each.name for each in part.graph.nodes if each.op == "placeholder"}, said)
        frames = frames_of(node)
        caller, where = frames[0][:2] if frames else (), _where(node)
        function = _function_of(node, frames)
        if function:
            said.setdefault((function, *caller), f"[autograd.Function] {where}: {_FUNCTION.format(function)}")
        elif _is_reentrant(frames):
            said.setdefault("checkpoint", f"[checkpoint] {where}: {_CHECKPOINT}")
        if not str(node.target).startswith("aten.detach"):
            learns.add(node)


def say_if_in_eval(program):
    """Warns where a program has layers of a training mode, and all of them are as in eval()."""
    modes = [(node, node.args[_MODES[str(node.target)]]) for node in program.graph.nodes
             if str(node.target) in _MODES and len(node.args) > _MODES[str(node.target)]]
    modes += [(node, False) for node in program.graph.nodes
              if str(node.target) == "aten._native_batch_norm_legit_no_training.default"]
    if modes and not any(training for _, training in modes):
        first = modes[0][0]
        warnings.warn(f"the program was exported in eval(): {_where(first)} and others do in training what they "
                      "do in predictions, without dropout and by running statistics that stay. To train them: "
                      "torch.export.export(module.train(), ...)", stacklevel=4)
