"""The programs of the pages that users read, byte for byte but for the import line."""

import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

PAGES = pathlib.Path(__file__).parents[3] / "shared" / "reference" / "users_docs"
if not PAGES.exists():
    pytest.skip(f"the pages are not here: {PAGES}", allow_module_level=True)

# What the pages leave out around a fragment, as a reader would write it.
SESSION = """
with tf.Session(config=globals().get("sess_config")) as sess:
    sess.run(tf.global_variables_initializer())
    print(sess.run({values}, feed_dict={feeds}))
"""


def page(name):
    return (PAGES / name).read_text()


def blocks(name):
    return [textwrap.dedent(each) for each in re.findall(r"```python\n(.*?)```", page(name), re.S)]


def run(tmp_path, program, **environment):
    program, count = re.subn(r"^import tensorflow as tf$", "import braid.compat.v1 as tf", program, flags=re.M)
    assert count == 1
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240,
                          env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_regression_over_two_streams(tmp_path):
    (program,) = [each for each in blocks("deeprec_gpu_multistream.md") if "final_loss" in each]
    out = run(tmp_path, program)
    losses = [float(each) for each in re.findall(r"loss==([0-9.]+)", out)]
    assert len(losses) == 11 and losses[-1] < losses[0] and losses[-1] < 0.2
    assert re.search(r"^Linear Regression Model: Z=-?\d+\.\d{4}\*X \+ -?\d+\.\d{4}\*Y \+ -?\d+\.\d{4}$", out, re.M)


def test_nested_streams_and_colocation(tmp_path):
    (fragment,) = [each for each in blocks("deeprec_gpu_multistream.md") if "tf.colocate_with" in each]
    (settings,) = [each for each in blocks("deeprec_gpu_multistream.md") if "multi_stream_num = 4" in each]
    out = run(tmp_path, settings + fragment + "e = a + b + c + d\n" + SESSION.format(values="e", feeds="{a: [[1.0]], b: [[2.0]]}"))
    assert re.findall(r"[0-9.]+", out) == ["9.", "11.", "13.", "15."]


def staged_program():
    text = page("deeprec_stage.md").replace("\u00a0", " ")
    return text[text.rindex("import tensorflow as tf"):]


def test_staged_text_pipeline(tmp_path):
    (tmp_path / "1.txt").write_text("".join(f"{word},{i}\n" for i, word in enumerate("abcdefghij")))
    out = run(tmp_path, staged_program())
    texts = [re.findall(r"b'(.*?)'", each) for each in out.split("[array(")[1:]]
    assert len(texts) == 5 and all(len(each) == 12 for each in texts)
    assert [each[:6] for each in texts] == [["1.000000"] * 6] * 5 and all(each[-1] == "xxx" for each in texts)


def test_staged_text_pipeline_in_pools_and_streams_of_its_own(tmp_path):
    (tmp_path / "1.txt").write_text("".join(f"{word},{i}\n" for i, word in enumerate("abcdefghij")))
    lines = [line.strip() for line in page("deeprec_stage.md").splitlines() if line.strip().startswith("sess_config")]
    settings = "\n".join(dict.fromkeys(lines))  # both fragments over one ConfigProto
    program = staged_program().replace(
        "var = ", "from tensorflow.core.protobuf import rewriter_config_pb2\n" + settings + "\nvar = ", 1)
    program = program.replace("tf.staged([v0, v1])", "tf.staged([v0, v1], capacity=2, num_threads=2, "
                              "use_stage_subgraph_thread_pool=True, stage_subgraph_thread_pool_id=0, stage_subgraph_stream_id=1)")
    out = run(tmp_path, program.replace("hooks=[tf.make_prefetch_hook()]", "hooks=[tf.make_prefetch_hook()], config=sess_config"))
    assert out.count("1.000000") == 30


def test_stream_scopes_of_tf_cuda(tmp_path):
    text = page("multi_stream_tensorflow.md")
    (scope,) = re.findall(r"^with tf\.cuda\.stream_scope.*?^ out = \.\.\.$", text, re.S | re.M)
    settings = dict(re.findall(r"^export (TF_GPU_STREAM_GROUP_COUNT|TF_NODE_LEVEL_MULTISTREAM)=(\w+)$", text, re.M)[:2])
    program = "import tensorflow as tf\na = tf.constant([1.0, 2.0])\n" + scope.replace("...", "a * 3.0") + "\n"
    out = run(tmp_path, program + SESSION.format(values="out", feeds="{}"), **settings)
    assert re.findall(r"[0-9.]+", out) == ["3.", "6."]
