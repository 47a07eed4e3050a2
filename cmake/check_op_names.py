#!/usr/bin/env python3
"""Counts where the engine, outside of the ops themselves, compares an op's name.

What is known of an op, the op says (engine/ir/op_traits.h, OpDef): a pass that asks works for ops that do not exist
yet. Patterns of rewrite rules (engine/rewrite/rule.h) name ops, as that is what they are for; they are lists, not
comparisons. ALLOWED has what else remains, with the reason; a file may have fewer, not more.

Usage: check_op_names.py [ROOT]. Prints each comparison that is not allowed as file:line and exits 1 when there are any;
exits 2 where ROOT is not the project's folder, in which nothing would be compared.
"""

import pathlib
import re
import sys
import tempfile

# File or folder -> (comparisons, why).
ALLOWED = {
    "engine/import/branch_gates.cc": (3, "reads of TensorFlow's variables, before they are nodes here"),
    "engine/import/choose_branches.cc": (10, "TensorFlow 1's conditionals, which are no ops here"),
    "engine/import/function_library.cc": (9, "calls, Ifs and effects of TensorFlow's, which are no ops here"),
    "engine/import/graph_file.cc": (1, "refuses ops that are Braid's own by their prefix; exceptions say so themselves"),
    "engine/import/import.cc": (1, "TensorFlow's lists of tensors, which are no ops here"),
    "engine/import/inline_functions.cc": (2, "TensorFlow's loops, which are no ops here"),
    "engine/import/loops_as_functions.cc": (14, "TensorFlow 1's loops and arrays, which are no ops here"),
    "engine/import/lower_tables.cc": (3, "TensorFlow's tables, which are no ops here"),
    "engine/import/lower_variables.cc": (7, "TensorFlow's references, which are no ops here"),
    "engine/import/op_forms.cc": (17, "the patterns of what is written in another form"),
    "engine/import/optional_values.cc": (11, "TensorFlow's optionals, which are no ops here"),
    "engine/import/tensor_lists.cc": (17, "TensorFlow's lists of tensors, which are no ops here"),
    "engine/import/text_functions.cc": (11, "functions of TensorFlow's texts, before they are nodes here"),
    "engine/import/unroll_loops.cc": (8, "the forms of a loop's limit, and lists, which are no ops here"),
    "engine/ir/op_library.cc": (1, "refuses ops of a library whose names have Braid's prefix"),
    "engine/import/onnx/builder.cc": (3, "what a value that was just made is the broadcast of"),
    "engine/import/onnx/onnx.cc": (1, "ONNX's op, not ours"),
    "engine/import/onnx/unsigned.cc": (12, "ONNX's ops, not ours"),
    "engine/import/onnx/partial_ints.cc": (14, "computes on integers of which some are not known"),
}

NAME = r'"(?:braid\.)?[A-Z]\w*"'
COMPARISON = re.compile(
    rf"(?:\bop->name|\bop\.name|\.op|\bop\(\)|\bop)\s*(?:==|!=)\s*(?:{NAME}|k[A-Z])"
    rf"|{NAME}\s*(?:==|!=)"
    rf"|\bop(?:->name|\.name|\(\))?\.starts_with\("
    rf"|made_by\([^;]*?{NAME}\)"
)


def comparisons(text: str):
    """(line, text) of each; a comment has none."""
    text = re.sub(r"//[^\n]*", "", text)
    for match in COMPARISON.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, " ".join(match.group().split())


def sources(root: pathlib.Path):
    """The engine's files outside of the ops. Raises ValueError where there are none, or an ALLOWED one is not there."""
    files = [
        path
        for path in sorted((root / "engine").rglob("*"))
        if path.suffix in {".h", ".cc"} and not path.relative_to(root).as_posix().startswith("engine/ops/")
    ]
    if not files:
        raise ValueError(f"{root} has no engine/ with sources: ROOT is the project's folder")
    gone = [name for name in ALLOWED if not (root / name).exists()]
    if gone:
        raise ValueError(f"ALLOWED names what {root} does not have: {', '.join(gone)}")
    return files


def self_test():
    for line in [
        'if (node.op->name == "MatMul") fuse(id);',
        'return op != "BiasAdd";',
        'if (node.op() == "If" )',
        "return node.op->name == kSparse;",
        'const Node* pack = made_by(made.x, "Pack");',
        'inner.op().starts_with("Assert")',
    ]:
        assert list(comparisons(line)), line
    for line in ['// op == "MatMul"', 'OpRegistry::global().require("MatMul")', 'add(group, "Unpack", name)']:
        assert not list(comparisons(line)), line
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for make in [lambda: None, lambda: (root / "engine").mkdir(), lambda: (root / "engine/a.cc").touch()]:
            make()
            try:
                sources(root)
            except ValueError:
                continue
            raise AssertionError("a folder that is not the project passes")


def main():
    self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    found, total = {}, 0
    try:
        files = sources(root)
    except ValueError as error:
        print(f"check_op_names.py: {error}", file=sys.stderr)
        sys.exit(2)
    for path in files:
        name = path.relative_to(root).as_posix()
        for line, text in comparisons(path.read_text(encoding="utf-8")):
            rule = next((rule for rule in ALLOWED if name.startswith(rule)), name)
            found.setdefault(rule, []).append(f"{name}:{line}: {text}")
            total += 1
    wrong = []
    for rule, lines in found.items():
        allowed = ALLOWED.get(rule, (0, ""))[0]
        if len(lines) > allowed:
            wrong += [*lines, f"{rule}: {len(lines)} comparisons of op names, {allowed} are allowed"]
    print("\n".join(wrong) or f"op names: {total} comparisons outside of engine/ops, each with its reason")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
