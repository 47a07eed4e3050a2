#!/usr/bin/env python3
"""Finds names that clash when sources of a folder are compiled together (BRAID_UNITY, as launch/quickstart does).

Two sources may not each define, in an anonymous namespace or as `static`, a type or a constant of one name, or a function
of one name and like parameters. Texts are alike, and numbers: a call would take the other source's function without a word.
An alias may stand in several where it says the same. Ops are compiled alone (engine/ops), and so is a source that a
CMakeLists.txt gives SKIP_UNITY_BUILD_INCLUSION. Sources of tests are those of one program each, ops' among them. The compiler has
the last word (`.ci/run`, the preset `together`); this takes a second.

No two types of the product may have one full name either, joined or not: the linker keeps one of their destructors.

Usage: check_joined_names.py [ROOT]. Prints each clash and exits 1 when there are any; exits 2 where ROOT is not the project's
folder.
"""

import collections
import pathlib
import re
import sys
import tempfile

FOLDERS = ["base", "comm", "engine", "launch", "models", "ps", "watch", "worker", "cli"]
APART_IN_TESTS = re.compile(r"(?:.*[/_])?(?:cuda|nccl|mpi)[/_]")  # as braid_sources_together of BraidTargets.cmake has it
APART = re.compile(f"engine/ops/|{APART_IN_TESTS.pattern}")
PROGRAM = re.compile(r"(braid_test|add_executable)\((\w+)\s+(?:SOURCES\s+)?([^)]*?)(?:\)|\b(?:LIBS|LABELS|TIMEOUT)\b)")

# (folder, name) -> why two sources may have it.
ALLOWED = {
    ("worker", "Rows"): "evaluation/ and strategies/, which are never joined",
    ("worker", "Run"): "the worker's own folder and strategies/, which are never joined",
}

# Types of one full name that are known.
ALLOWED_TWICE = {"braid::Pooling": "a struct and an enumeration, neither of which the linker has anything of; to be renamed"}

QUALIFIERS = r"(?:(?:static|constexpr|inline|const|thread_local|\[\[\w+\]\]) )*"
TYPE = re.compile(
    r"(?:template <[^\n]*>\s+)?(?:struct|class|enum class|enum|union) (?:alignas\([^)]*\) )?"
    r"(\w+)(?: final)?(?: : [^\n]*)?(?: \{|$)"
)
ALIAS = re.compile(r"(?:using|namespace) (\w+) = ([^;]*);")
VALUE = re.compile(QUALIFIERS + r"[\w:]+(?:<[^\n=]*>)?[ *&]+(\w+)(?:\[\w*\])*(?: =|\{|;)")
FUNCTION = re.compile(QUALIFIERS + r"[\w:]+(?:<[^\n(]*>)?[ *&]+(\w+)\(")


def blocks(text):
    """(text, only static) of what has the names of one source: its anonymous namespaces, and the rest for `static`."""
    inside = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.S | re.M)
    for match in inside.finditer(text):
        yield match.group(1), False
    yield inside.sub("", text), True


def parameters(text):
    """The types of a parameter list that begins after its parenthesis, and those without what has a default, if any has."""
    depth, end = 1, 0
    while depth and end < len(text):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    parts, depth, part = [], 0, ""
    for letter in text[: end - 1]:
        depth += {"<": 1, "(": 1, "{": 1, ">": -1, ")": -1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    parts.append(part)
    types, must = [], 0
    for part in parts:
        must += " = " not in part
        part = " ".join(re.sub(r" = .*", "", part, flags=re.S).split())
        # A parameter's name is a word after a type; `const Tensor&` has none.
        part = re.sub(r"(?<=[\w>&*]) ?(?<=[ &*])\w+(?:\[\])?$", "", part).strip()
        part = re.sub(r"\b(?:std|chrono|steady_clock|proto|Clock)::", "", part)
        part = re.sub(r"^(?:string_view|(?:const )?string&?|const char\*)$", "text", part)
        types.append(re.sub(r"^(?:bool|int|float|double|size_t|u?int\d+_t|\w+Id)$", "number", part))
    return [", ".join(types[:count]) for count in sorted({len(types), must if parts != [""] else len(types)})]


def definitions(text):
    """(name, kind) of each; of an alias and of a function the kind has what it says."""
    for block, only_static in blocks(text):
        block = re.sub(r"(?m) *//[^\n\"]*$", "", block)
        for match in re.finditer(r"(?m)^(?=\S)", block):
            rest = block[match.start() :]
            line = rest.split("\n", 1)[0]
            if only_static and not line.startswith("static "):
                continue
            if found := TYPE.match(line):
                yield found[1], "type"
            elif found := ALIAS.match(rest):
                yield found[1], "alias " + " ".join(found[2].split())
            elif line.startswith(("return", "using", "#", "}", "public", "private", "template", "extern")):
                continue
            elif (found := FUNCTION.match(rest)) and not line.rstrip().endswith(");"):
                for types in parameters(rest[found.end() :]):
                    yield found[1], f"({types})"
            elif found := VALUE.match(line):
                for value in [found[1], *re.findall(r", (\w+) = ", line)]:
                    yield value, "value"


def named_twice(root):
    """(name, files) of types that have one full name in several places."""
    places = collections.defaultdict(set)
    for folder in [*FOLDERS, "python"]:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".h", ".cc", ".cu", ".cuh"}:
                continue
            spaces = []
            for line in path.read_text(encoding="utf-8").splitlines():
                if found := re.match(r"(?:inline )?namespace ?([\w:]*) \{$", line):
                    spaces.append(found[1])
                elif line.startswith("}  // namespace"):
                    del spaces[-1:]
                elif "" not in spaces and (found := TYPE.match(re.sub(r" *//.*", "", line))):
                    places["::".join([*spaces, found[1]])].add(path.relative_to(root).as_posix())
    return [(name, files) for name, files in sorted(places.items()) if len(files) > 1 and name not in ALLOWED_TWICE]


def sources_of_programs(lists, root):
    """(program, its sources) of each program of a CMakeLists.txt to which braid_test or braid_test_sources holds."""
    text = re.sub(r"(?m)#.*$", "", lists.read_text(encoding="utf-8"))
    alone = {word for words in re.findall(r"set_source_files_properties\((.*?) PROPERTIES COMPILE_DEFINITIONS", text)
             for word in words.split()}
    for kind, program, words in PROGRAM.findall(text):
        if kind != "braid_test" and f"braid_test_sources({program})" not in text:
            continue
        paths = []
        for word in words.split():
            if variable := re.fullmatch(r"\$\{(\w+)\}", word):
                found = re.search(rf"(?:file\(GLOB|set\()\s*{variable[1]}(?: CONFIGURE_DEPENDS)?([^)]*)\)", text)
                patterns = found[1].split() if found else []
                paths += [path for pattern in patterns for path in sorted(lists.parent.glob(pattern))]
            elif word.endswith(".cc") and word not in alone:
                paths.append((lists.parent / word).resolve())
        places = {path.relative_to(root).as_posix(): path for path in paths}
        yield program, {place: path for place, path in places.items() if not APART_IN_TESTS.match(place)}


def clashes(root):
    """(folder, name, kinds and files) of each. Raises ValueError where ROOT has no sources."""
    named = collections.defaultdict(lambda: collections.defaultdict(dict))
    alone = {}
    for lists in sorted((root / "tests").rglob("CMakeLists.txt")):
        for program, sources in sources_of_programs(lists, root):
            for place, path in sources.items():
                for name, kind in definitions(path.read_text(encoding="utf-8")):
                    named[program][name].setdefault(kind, set()).add(place)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.cc")):
            place = path.relative_to(root).as_posix()
            if APART.match(place):
                continue
            target = path.parent
            while not (target / "CMakeLists.txt").exists() and target != root:
                target = target.parent
            if target not in alone:
                lists = target / "CMakeLists.txt"
                text = lists.read_text(encoding="utf-8") if lists.exists() else ""
                skips = re.findall(r"set_source_files_properties\(([^)]*)SKIP_UNITY_BUILD_INCLUSION", text)
                alone[target] = {word for skip in skips for word in skip.split()}
            if path.relative_to(target).as_posix() in alone[target]:
                continue
            for name, kind in definitions(path.read_text(encoding="utf-8")):
                named[target.relative_to(root).as_posix()][name].setdefault(kind, set()).add(place)
    if not named:
        raise ValueError(f"{root} has no sources: ROOT is the project's folder")
    for target, names in named.items():
        for name, kinds in names.items():
            if (target, name) in ALLOWED:
                continue
            functions = {kind: files for kind, files in kinds.items() if kind.startswith("(")}
            others = {kind: files for kind, files in kinds.items() if not kind.startswith("(")}
            same = [(kind, files) for kind, files in kinds.items() if len(files) > 1 and not kind.startswith("alias")]
            # Types and values with functions or others of their name.
            files = set().union(*others.values()) if others else set()
            mixed = len(others) > 1 or (others and functions)
            if same or (mixed and len(files | set().union(*kinds.values())) > 1):
                yield target, name, kinds


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "base").mkdir()
        lists = "set_source_files_properties(c.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)\n"
        (root / "base/CMakeLists.txt").write_text(lists)
        body = "namespace braid {{\nnamespace {{\n{}\n}}  // namespace\n}}\n"

        def found(a, b, c=""):
            for name, text in (("a", a), ("b", b), ("c", c)):
                (root / f"base/{name}.cc").write_text(body.format(text))
            return [name for _, name, _ in clashes(root)]

        assert found("struct Row {\n};", "class Row final {\n};") == ["Row"]
        assert found("struct Row {\n};", "int f();", "struct Row {\n};") == []  # c is compiled alone
        assert found("int f(const A& a) {\n}", "int f(const A& other) {\n}") == ["f"]
        assert found("int f(const A& a) {\n}", "int f(const B& a) {\n}") == []
        assert found("int f(A a = {}) {\n}", "int f() {\n}") == ["f"]
        assert found("int f(A a, B b = {}) {\n}", "int f(A a, C c) {\n}") == []
        assert found("constexpr int kSize = 1;", "constexpr int kSize = 2;") == ["kSize"]
        assert found("constexpr int kOne = 1, kTwo = 2;", "constexpr int kTwo = 2;") == ["kTwo"]
        assert found("using Ints = A;", "using Ints = A;") == []
        assert found("using Ints = A;", "using Ints = B;") == ["Ints"]
        assert found("int f(const char* a) {\n}", "int f(std::string_view a) {\n}") == ["f"]
        (root / "tests").mkdir()
        (root / "tests/CMakeLists.txt").write_text(
            "file(GLOB more CONFIGURE_DEPENDS *_cases.cc)\nbraid_test(one SOURCES a.cc ${more} LIBS x)\nbraid_test(two SOURCES b.cc LIBS x)\n")
        for name in ("a", "b", "c_cases"):
            (root / f"tests/{name}.cc").write_text(body.format("struct Case {\n};"))
        assert [(target, name) for target, name, _ in clashes(root) if target != "base"] == [("one", "Case")]
        assert named_twice(root) == []
        for name in ("a.h", "b.h"):
            (root / f"base/{name}").write_text("namespace braid {\nstruct Plan {\n};\n}  // namespace braid\n")
        assert [name for name, _ in named_twice(root)] == ["braid::Plan"]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    self_test()
    try:
        found, twice = list(clashes(root)), named_twice(root)
    except ValueError as error:
        sys.exit(print(f"check_joined_names.py: {error}", file=sys.stderr) or 2)
    for target, name, kinds in found:
        print(f"{target}: '{name}' stands in several sources that are compiled together:")
        for kind, files in kinds.items():
            for file in sorted(files):
                print(f"  {file}: {kind}")
    for name, files in twice:
        print(f"{name} is defined in {', '.join(sorted(files))}: the program gets one of the two")
    sys.exit(1 if found or twice else 0)


if __name__ == "__main__":
    main()
