"""Python programs as the tasks of a job."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

BRAID = os.environ.get("BRAID_BINARY", "braid")
PROGRAM = """
import json, os, sys
sys.path.insert(0, {folder!r})
import braid as bd, programs
t = programs.trainer(programs.plain_net, optimizer=bd.optim.SGD(0.1), strategy={strategy})
history = t.fit(steps=20)
{then}
if history.result: print("variables:", json.dumps({{name: value.tolist() for name, value in t.variables.items()
                                                    if name.startswith("dense/")}}), flush=True)
"""


def variables(text):
    return json.loads(next(line for line in text.splitlines() if line.startswith("variables: "))[11:])


def run(tmp_path, strategy, *launch, then=""):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.format(folder=os.path.dirname(__file__), strategy=strategy, then=then))
    environment = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    done = subprocess.run([*launch, sys.executable, str(program)], capture_output=True, text=True, timeout=200,
                          env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return variables(done.stdout)


@pytest.mark.parametrize("strategy, tasks", [("bd.PS()", ["--workers", "2", "--ps", "1"]),
                                             ("'auto'", ["--workers", "2"]),
                                             ("bd.TensorParallel(tensor={'min_width': 1, 'layer': [{'match': "
                                              "'head/.*', 'split': 'WHOLE'}]})", ["--workers", "2"])])
def test_two_workers_train_as_one(tmp_path, strategy, tasks):
    alone = run(tmp_path, "bd.Local()")
    together = run(tmp_path, strategy, BRAID, "launch", *tasks)
    assert together.keys() == alone.keys() == {"dense/kernel", "dense/bias"}
    for name in alone:
        np.testing.assert_allclose(together[name], alone[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_replicas_of_a_process_train_as_one(tmp_path):
    alone = run(tmp_path, "bd.Local()")
    together = run(tmp_path, "bd.Mirrored(mirrored={'devices': 2})")
    assert together.keys() == alone.keys() == {"dense/kernel", "dense/bias"}
    for name in alone:
        np.testing.assert_allclose(together[name], alone[name], rtol=1e-4, atol=1e-6, err_msg=name)


REFUSED = """
if history.result:
    for use in (lambda: t.evaluate(t.data), lambda: t.save("variables"), lambda: t.fit(steps=1)):
        try:
            use()
        except bd.InvalidArgument as error:
            assert "are not in this process: under strategy PS" in str(error), error
        else:
            sys.exit("values that servers have were taken from here")
"""


def test_what_servers_have_is_not_guessed(tmp_path):
    run(tmp_path, "bd.PS()", BRAID, "launch", "--workers", "1", "--ps", "1", then=REFUSED)


def test_a_word_that_is_nothing_is_refused():
    done = subprocess.run([BRAID, "launch", "--workers", "1", "trian"], capture_output=True, text=True)
    assert done.returncode == 2 and "neither a subcommand" in done.stderr


def test_the_module_launches_its_own_command_line():
    done = subprocess.run([sys.executable, "-m", "braid", "launch", "--workers", "1", "--", "doctor", "--help"],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
