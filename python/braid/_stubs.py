"""Writes ops.pyi beside ops.py: signatures and docs of all functions, also of those that come from the registry, for
type checkers and editors. Run by the build: python -m braid._stubs."""

import inspect
import os

from braid import _braid, ops

_HEAD = '''"""Written by braid/_stubs.py from the registry of ops."""
from typing import Any, Sequence

from braid.dtypes import DType
from braid.graph import Operation, Tensor

Value = Any  # a Tensor, an array, a number or text

'''
_KINDS = {"name": "str | None", "dtype": "DType", "out_type": "DType", "output_type": "DType"}
_RETURNS = {"group": "Operation", "names": "list[str]", "split": "list[Tensor]", "unstack": "list[Tensor]",
            "decode_csv": "list[Tensor]"}


def _parameter(each):
    kind = "Any" if each.kind is each.VAR_KEYWORD else _KINDS.get(each.name, "Value")
    prefix = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    default = "" if each.default is each.empty else " = ..."
    return f"{prefix}{each.name}: {kind}{default}"


def _signature(name, function):
    parts, star = [], False
    for each in inspect.signature(function).parameters.values():
        star = star or each.kind is each.VAR_POSITIONAL
        if each.kind is each.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        parts.append(_parameter(each))
    doc = inspect.getdoc(function) or ""
    returns = _RETURNS.get(name, "Any" if name == "call" or "from the registry" in doc else "Tensor")
    body = f'    """{doc}"""\n' if doc else "    ...\n"
    return f"def {name}({', '.join(parts)}) -> {returns}:\n{body}\n"


def _exceptions():
    """Exceptions of the module, which nanobind's stubs leave out."""
    found = {name: each for name, each in vars(_braid).items() if isinstance(each, type) and issubclass(each, Exception)}
    lines = []
    for name, each in sorted(found.items(), key=lambda item: (len(item[1].__mro__), item[0])):
        bases = ", ".join(base.__name__ for base in each.__bases__)
        body = "    op: str | None\n    node: str | None\n" if name == "Error" else "    ...\n"
        lines.append(f"class {name}({bases}):\n{body}\n")
    return "".join(lines)


def main():
    native = os.path.join(os.path.dirname(ops.__file__), "_braid.pyi")
    if os.path.exists(native):
        with open(native) as stub:
            text = stub.read()
        if "class Error" not in text:
            with open(native, "a") as out:
                out.write("\n" + _exceptions())
    functions = {name: each for name, each in vars(ops).items()
                 if inspect.isfunction(each) and not name.startswith("_") and each.__module__ == "braid.ops"}
    text = _HEAD + "".join(_signature(name, functions[name]) for name in sorted(functions))
    with open(os.path.join(os.path.dirname(ops.__file__), "ops.pyi"), "w") as out:
        out.write(text)


if __name__ == "__main__":
    main()
