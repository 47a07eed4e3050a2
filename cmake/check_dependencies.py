#!/usr/bin/env python3
"""Checks the direction of dependencies among the folders, by #include lines.

Two rules. A folder includes only what MAY_INCLUDE names. And headers of the slow libraries in HEAVY stay within a
folder: a header that reaches one, directly or through other headers, is included by files of its own folder only, so
that nobody else pays for it or comes to depend on it.

Usage: check_dependencies.py [ROOT]. Prints each violation as file:line and exits 1 when there are any.
"""

import functools
import pathlib
import re
import sys

# The engine's floors, from the ground up: a folder -> those below that it may include.
ENGINE = {
    "ir": [],
    "program": ["ir"],
    "graph": ["program", "ir"],
    "fusion": ["ir"],
    "device": [],
    "ops": ["device", "fusion", "ir"],
    "rewrite": ["graph", "program", "ops", "device", "fusion", "ir"],
    "schedule": ["rewrite", "graph", "program", "ir"],
    "memory": ["schedule", "program", "ir"],
    "verify": ["program"],
    "compile": ["verify", "memory", "schedule", "rewrite", "graph", "program", "ir"],
    "import": ["ir"],
    "builder": ["import", "ir"],
    "autodiff": ["ir"],
    "exec": ["compile", "memory", "schedule", "rewrite", "program", "ops", "device", "ir"],
    "staging": ["exec", "program", "builder", "ops", "device", "ir"],
    "input": ["staging", "ir"],
}
ENGINE_OUTSIDE = ["proto/graph.", "proto/example.", "proto/onnx.", "base"]

# Folder -> path prefixes that it may include. The longest matching folder counts.
MAY_INCLUDE = {
    "base": ["base"],
    "base/checkpoint": ["base", "proto/checkpoint."],  # the manifest is a protobuf text
    "comm": ["comm", "proto", "base"],
    **{
        f"engine/{folder}/": [f"engine/{own}/" for own in [folder, *below]] + ENGINE_OUTSIDE
        for folder, below in ENGINE.items()
    },
    "models": ["models", "engine", "proto/graph.", "base"],
    "examples": ["examples", "models", "engine", "proto", "base"],
    "examples/multistream_inference": ["worker/inference", "worker/job/settings.", "base"],
    "examples/own_model": ["cli/run_main.", "models", "engine", "base"],
    "examples/scorer": ["worker/inference", "worker/checkpoint/stored_variables.", "engine/import", "proto/graph.", "base"],
    "examples/multistream_training/main.": ["examples", "models", "engine", "proto", "worker/job", "base"],
    "launch": ["launch", "proto", "base"],
    "watch": ["watch", "base"],
    "ps": ["ps", "comm/transport", "comm/rendezvous/grpc_channel.", "comm/rendezvous/grpc_listener.", "proto", "base"],
    "worker": ["worker", "watch", "models", "launch", "ps/client", "engine", "comm", "proto", "base"],
    "worker/roles/server_role.": ["worker", "watch", "launch", "ps", "comm", "engine", "proto", "base"],
    "cli": ["cli", "worker", "watch", "models", "launch", "ps", "engine", "comm", "proto", "base"],
    "python": ["python", "cli", "worker", "launch", "engine", "proto", "base"],
    "bench": [""],
    "tests": [""],
}

HEAVY = re.compile(
    r"^(boost|CLI|dnnl|Eigen|grpc|grpcpp|mpi|nlohmann|oneapi|prometheus|spdlog|unsupported/Eigen)(/|\.h)"
)
GENERATED_HEAVY = ".grpc.pb.h"

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}


def may_include(file: str, header: str) -> bool:
    folder = max((f for f in MAY_INCLUDE if file.startswith(f)), key=len, default=None)
    return folder is not None and any(header.startswith(prefix) for prefix in MAY_INCLUDE[folder])


class Tree:
    def __init__(self, root: pathlib.Path):
        self.includes = {}  # file -> [(line, header, is_system)]
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix in SUFFIXES and name.split("/")[0] in {f.split("/")[0] for f in MAY_INCLUDE}:
                self.includes[name] = self._scan(path)
        self.unruled = sorted(
            p.parent.relative_to(root).as_posix()
            for p in root.glob("*/CMakeLists.txt")
            if p.parent.name not in MAY_INCLUDE and p.parent.name not in {"proto", "build", "engine", "python"}
        )

    @staticmethod
    def _scan(path: pathlib.Path):
        found = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                found.append((number, match.group(1) or match.group(2), match.group(1) is None))
        return found

    @functools.cache
    def heavy(self, file: str) -> str:
        """The slow header that `file` reaches, or ''."""
        for _, header, is_system in self.includes.get(file, []):
            if HEAVY.match(header) or header.endswith(GENERATED_HEAVY):
                return header
            if not is_system and self.heavy(header):
                return self.heavy(header)
        return ""

    def violations(self):
        for folder in self.unruled:
            yield f"{folder}: has a CMakeLists.txt and no rule in cmake/check_dependencies.py"
        for file, includes in self.includes.items():
            for line, header, is_system in includes:
                if not is_system and not may_include(file, header):
                    yield f"{file}:{line}: may not include {header}"
                foreign = pathlib.PurePosixPath(header).parent != pathlib.PurePosixPath(file).parent
                if not is_system and foreign and not file.startswith("tests/") and self.heavy(header):
                    yield f"{file}:{line}: {header} brings {self.heavy(header)} into another folder"


def self_test():
    """The rules refuse what they are there for."""
    floors = list(ENGINE)
    for folder, below in ENGINE.items():
        assert all(floors.index(other) < floors.index(folder) for other in below), f"{folder}: from the ground up"
    for file, header in [
        ("engine/ops/math/matmul.cc", "ps/client/client.h"),
        ("engine/input/formats/csv.cc", "proto/job.pb.h"),
        ("engine/ir/graph.cc", "engine/ops/registry.h"),
        ("engine/program/program.h", "engine/compile/compile.h"),
        ("engine/graph/prune.cc", "engine/exec/runtime.h"),
        ("engine/schedule/streams.cc", "engine/memory/arena_plan.h"),
        ("engine/ops/math/matmul.cc", "engine/rewrite/rewrite.h"),
        ("engine/new_folder/x.cc", "engine/ir/graph.h"),
        ("ps/server/server.cc", "comm/ring/ring.h"),
        ("base/files.cc", "proto/checkpoint.pb.h"),
        ("worker/run/trainer.cc", "ps/server/server.h"),
        ("launch/tf_config.cc", "worker/run/trainer.h"),
        ("cli/main.cc", "tests/util.h"),
    ]:
        assert not may_include(file, header), (file, header)
    assert may_include("engine/ops/math/matmul.cc", "engine/ir/graph.h")


def main():
    self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    tree = Tree(root.resolve())
    if not tree.includes:
        sys.exit(f"no source files under {root}")
    violations = list(tree.violations())
    print("\n".join(violations) or f"dependencies: {len(tree.includes)} files keep the rules")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
