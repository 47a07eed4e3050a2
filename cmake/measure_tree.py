#!/usr/bin/env python3
"""Counts what docs/design/measures.md has: how large files and functions are, and how many places a change touches.

Usage: measure_tree.py [ROOT]. Functions are counted where `pip install lizard` was done for this Python, else that line is
left out. The old trees of the page: git archive COMMIT | tar x -C DIR, then measure_tree.py DIR.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from check_op_names import comparisons  # noqa: E402

SOURCES = {".h", ".cc", ".cu", ".cuh"}
PRODUCT = ["base", "comm", "engine", "launch", "models", "ps", "watch", "worker", "cli", "examples", "python"]
PASSES = ["passes", "graph", "rewrite", "schedule", "memory", "verify", "compile"]  # "passes": before they were divided


def sources(root, folders):
    return [path for folder in folders for path in sorted((root / folder).rglob("*")) if path.suffix in SOURCES]


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def long_functions(files, most):
    """(length, place) of each; raises ImportError without lizard."""
    import lizard

    for path in files:
        for function in lizard.analyze_file(str(path)).function_list:
            if function.length > most:
                yield function.length, f"{path}:{function.start_line} {function.name}"


def naming(root, word, files):
    """Those of `files` that name `word` outside of comments."""
    texts = ((path, re.sub(r"(//|#)[^\n]*", "", path.read_text(encoding="utf-8"))) for path in files)
    return sorted(path.relative_to(root) for path, text in texts if re.search(rf"\b{word}\b", text))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    product = sources(root, PRODUCT)
    if not product:
        sys.exit(f"no source files under {root}")
    tests = sources(root, ["tests", "bench"])
    print(f"files: product {len(product)}, tests and bench {len(tests)}")
    for name, files in (("product", product), ("tests and bench", tests)):
        large = sorted(((len(lines(path)), path.relative_to(root)) for path in files), reverse=True)
        large = [f"{path} {count}" for count, path in large if count > 400]
        print(f"files over 400 lines, {name}: {len(large)}", *large, sep="\n  ")
    try:
        found = sorted(long_functions(product, 60), reverse=True)
        print(f"functions over 60 lines: {len(found)}", *(f"{length} {place}" for length, place in found), sep="\n  ")
    except ImportError:
        print("functions over 60 lines: left out, pip install lizard")
    pages = [path for path in root.rglob("*.md") if "build" not in path.relative_to(root).parts]
    text = [line for page in pages for line in lines(page)]
    print(f"docs: {len(text)} lines, {sum(len(line) > 100 for line in text)} over 100 columns")
    engine = [path for path in sources(root, ["engine"]) if path.relative_to(root).parts[1] != "ops"]
    in_passes = [path for path in engine if path.relative_to(root).parts[1] in PASSES]
    count = lambda files: sum(len(list(comparisons(path.read_text(encoding="utf-8")))) for path in files)  # noqa: E731
    print(f"comparisons of op names: {count(in_passes)} in passes, {count(engine)} in the engine outside of ops")
    built = lambda path: "build" in path.relative_to(root).parts  # noqa: E731
    lists = [path for path in root.rglob("*") if path.suffix in {".def", ".cmake"} or path.name == "CMakeLists.txt"]
    lists = naming(root, "l2_loss(_cases)?", [path for path in lists if not built(path)])
    print(f"lists that name the op l2_loss: {len(lists)}", *lists, sep="\n  ")
    job = naming(root, "measure_seconds", [root / "proto/job.proto", *sources(root, ["worker", "cli"])])
    print(f"files that name the job's field measure_seconds: {len(job)}", *job, sep="\n  ")


if __name__ == "__main__":
    main()
