"""The notebooks: their cells run in a plain interpreter, and in Jupyter where nbclient and a kernel are installed."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def cells(path):
    return ["".join(each["source"]) for each in json.loads(path.read_text())["cells"] if each["cell_type"] == "code"]


def test_there_are_notebooks():
    assert [each.stem for each in NOTEBOOKS] == ["first_steps"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda each: each.stem)
def test_cells_run_one_after_another(path, tmp_path):
    done = subprocess.run([sys.executable, "-c", "\n".join(cells(path))], cwd=tmp_path, capture_output=True, text=True,
                          timeout=200, env=os.environ)
    assert done.returncode == 0, done.stderr[-2000:]
    first, last = (float(word) for word in done.stdout.split("loss: ")[1].split(" at last")[0].replace(" at first,", "").split())
    assert last < 0.8 * first
    assert "'AUC'" in done.stdout or "'auc'" in done.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda each: each.stem)
def test_runs_in_jupyter(path, tmp_path):
    nbformat = pytest.importorskip("nbformat", reason="Jupyter is not installed: pip install nbclient ipykernel")
    nbclient = pytest.importorskip("nbclient", reason="Jupyter is not installed: pip install nbclient ipykernel")
    pytest.importorskip("ipykernel", reason="no kernel is installed: pip install ipykernel")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", []))
    assert "at last" in printed and "inference_file" in printed


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda each: each.stem)
def test_is_kept_without_outputs(path):
    for cell in json.loads(path.read_text())["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None
