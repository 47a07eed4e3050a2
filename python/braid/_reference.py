"""Writes the reference of the package from its docstrings: python -m braid._reference > docs/user/python_reference.md."""

import inspect
import re
import textwrap

import braid as bd
from braid import callbacks, data, io, losses, nn, ops, optim, settings

_WIDTH = 100
_HEAD = """# Python reference

This page lists what `import braid as bd` has, for users of the [Python package](python.md). It is
written from the docstrings by `python -m braid._reference`. Each registered op has a function in
`bd.ops` besides those below; `help(bd.ops.NAME)` says how many inputs it takes.
"""


def _signature(function):
    try:
        signature = inspect.signature(function)
        plain = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
        text = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    except (TypeError, ValueError):
        return "(...)"
    return re.sub(r"<[^<>]* object at 0x[0-9a-f]+>|<class '([^']+)'>", lambda m: m.group(1) or "...", text)


def _code(text):
    """A line of code, over several where it is long."""
    if len(text) + 4 <= _WIDTH:
        return f"    {text}\n"
    head, rest = text.split("(", 1)
    return "\n".join(textwrap.wrap(f"{head}({rest}", _WIDTH, initial_indent="    ", subsequent_indent="        ",
                                   break_long_words=False, break_on_hyphens=False)) + "\n"


def _prose(doc):
    """Paragraphs of a docstring within the width; indented lines stay code."""
    parts = []
    for part in re.split(r"\n\s*\n", inspect.cleandoc(doc or "")):
        if part.startswith("    "):
            parts.append(part)
        else:
            parts.append(textwrap.fill(" ".join(part.split()), _WIDTH, break_long_words=False, break_on_hyphens=False))
    return "\n\n".join(parts).replace("*", "\\*").replace("<", "\\<") + "\n"


def _function(name, function):
    return f"{_code(name + _signature(function))}\n{_prose(function.__doc__)}"


def _members(kind):
    """Of the class, and of those of the package's own files that it is made of."""
    own = [each for each in reversed(kind.__mro__[1:]) if each.__module__.startswith("braid._") and each.__module__ != "braid._braid"
           and each.__name__ not in ("Tensor", "Operation")]
    return {**vars(kind), **{name: value for each in own for name, value in vars(each).items()}}


def _class(name, kind):
    # A class that says nothing of its own has no signature worth reading.
    plain = kind.__init__ is object.__init__ or issubclass(kind, BaseException)
    parts = [f"{_code(f'class {name}' + ('' if plain else _signature(kind)))}\n{_prose(kind.__doc__)}"]
    for method, value in _members(kind).items():
        if method.startswith("_") or not (inspect.isfunction(value) or isinstance(value, property)):
            continue
        doc = (value.fget if isinstance(value, property) else value).__doc__
        if doc:
            text = f".{method}" + ("" if isinstance(value, property) else _signature(value).replace("(self, ", "(").replace("(self)", "()"))
            parts.append(f"{_code(text)}\n{_prose(doc)}")
    return "\n".join(parts)


def _entries(prefix, items):
    for name, value in items:
        if inspect.isclass(value):
            yield _class(prefix + name, value)
        elif inspect.isfunction(value) and value.__doc__:
            yield _function(prefix + name, value)


def _own(module):
    """Public functions and classes that the module itself defines, in their order."""
    return [(name, value) for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__ and
            (inspect.isfunction(value) or inspect.isclass(value)) and "from the registry" not in (value.__doc__ or "")]


def _written_ops():
    source = inspect.getsource(ops)
    return [(name, value) for name, value in _own(ops)
            if re.search(rf"^(def {name}\(|{name} = _reduction)", source, re.M)]


def text():
    top = [(name, getattr(bd, name)) for name in (
        "Trainer", "Outputs", "History", "StepResult", "Session", "Graph", "Tensor", "Variable", "placeholder", "constant",
        "variable", "gradients", "stream", "colocate", "device", "control", "name_scope", "staged", "load_op_library")]
    strategies = [(name, getattr(settings, name)) for name in (
        "Local", "AllReduce", "Mirrored", "PS", "Hybrid", "PSAllReduce", "Pipeline", "TensorParallel", "Experts", "Checkpoint")]
    sections = [
        ("Training, graphs and sessions", "bd.", top), ("Strategies and checkpoints", "bd.", strategies),
        ("Layers", "bd.nn.", _own(nn)), ("Losses", "bd.losses.", _own(losses)), ("Optimizers", "bd.optim.", _own(optim)),
        ("Data", "bd.data.", _own(data)), ("Callbacks", "bd.callbacks.", _own(callbacks)),
        ("Models of other programs", "bd.io.", _own(io)), ("Ops", "bd.ops.", _written_ops())]
    parts = [_HEAD]
    for title, prefix, items in sections:
        parts.append(f"## {title}\n")
        parts.extend(_entries(prefix, items))
    return "\n".join(parts)


if __name__ == "__main__":
    print(text(), end="")
