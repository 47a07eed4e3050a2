"""Builds the wheel and tests what it installs.

    V/bin/pip install scikit-build-core
    V/bin/python python/make_wheel.py --out dist [--build build/release] [--test]

--build takes a build folder that is there, of the same Python, so that only the module is linked again; without it the
wheel is built from nothing. --test makes a new virtual environment with NumPy, pytest and the wheel alone, and runs the
package's tests there. Says the wheel's size. Exit 1 where something fails.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Tests that need no files of a build.
TESTS = ("test_module", "test_graph", "test_session", "test_data", "test_trainer", "test_compat", "test_replicas")


def settings_of(build):
    """What keeps a build folder as it was configured."""
    cache = dict(line.split(":", 1) for line in (build / "CMakeCache.txt").read_text().splitlines() if ":" in line)
    settings = [f"build-dir={build}"]
    for name in ("BRAID_TESTS", "BRAID_BENCH"):
        if name in cache:
            settings.append(f"cmake.define.{name}={cache[name].split('=', 1)[1]}")
    generator = cache.get("CMAKE_GENERATOR", "").split("=", 1)[-1]
    return settings + ([f"cmake.args=-G{generator}"] if generator else [])


def build_wheel(out, build):
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT / "python"), "--no-deps", "--wheel-dir", str(out)]
    if build:
        command.append("--no-build-isolation")
        for setting in settings_of(build.resolve()):
            command += ["--config-settings", setting]
    before = {each: each.stat().st_mtime for each in out.glob("*.whl")}
    cache = build and build / "CMakeCache.txt"
    was = cache and cache.read_text()
    try:
        subprocess.run(command, check=True)
    finally:
        if was:  # without the prefix and the settings of wheels
            cache.write_text(was)
    made = [each for each in out.glob("*.whl") if before.get(each) != each.stat().st_mtime]
    if len(made) != 1:
        raise SystemExit(f"pip made {len(made)} wheels in {out}")
    return made[0]


def describe(wheel):
    with zipfile.ZipFile(wheel) as stored:
        names = stored.namelist()
        large = max(stored.infolist(), key=lambda each: each.file_size)
    for needed in ("braid/__init__.py", "braid/_braid.pyi", "braid/ops.pyi", "braid/py.typed"):
        if needed not in names:
            raise SystemExit(f"{wheel.name} lacks {needed}")
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {len(names)} files; {large.filename} is {large.file_size / 1e6:.1f} MB")


def test_wheel(wheel, tests):
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = pathlib.Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", "numpy", "pytest", str(wheel)], check=True)
        files = [str(ROOT / "tests" / "python" / f"{name}.py") for name in tests]
        environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "BRAID_BINARY": f"{folder}/bin/braid"}
        done = subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files], cwd=folder, env=environment)
        return done.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("dist"))
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--test", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    wheel = build_wheel(options.out, options.build)
    describe(wheel)
    return test_wheel(wheel.resolve(), TESTS) if options.test else 0


if __name__ == "__main__":
    sys.exit(main())
