"""Between-graph replication: ClusterSpec, Server, SyncReplicasOptimizer, over real processes."""

import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import braid.compat.v1 as tf

PROGRAM = """
import sys
import numpy as np
import braid.compat.v1 as tf

job, index, addresses, sync, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(","), sys.argv[4] == "sync", sys.argv[5]
cluster = tf.train.ClusterSpec({"worker": addresses[:2], "ps": addresses[2:]})
server = tf.train.Server(cluster, job_name=job, task_index=index)
if job == "ps":
    server.join()
    print("the server has ended")
    sys.exit(0)
with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % index, cluster=cluster)):
    x, ids = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.int64, [None])
    w = tf.get_variable("w", [3, 1], initializer=tf.random_normal_initializer())
    table = tf.get_variable("table", [7, 1], initializer=tf.constant_initializer(0.25 + index))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + tf.nn.embedding_lookup(table, ids) - 1.0))
    step = tf.train.get_or_create_global_step()
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    if sync:
        optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=2, total_num_replicas=2)
    train = optimizer.minimize(loss, global_step=step)
hooks = [tf.train.StopAtStepHook(last_step=5)] + ([optimizer.make_session_run_hook(index == 0)] if sync else [])
rng = np.random.default_rng(index)
with tf.train.MonitoredTrainingSession(master=server.target, is_chief=index == 0, hooks=hooks, checkpoint_dir=folder) as session:
    begin = session.run([w, table])
    runs = 0
    while not session.should_stop():
        session.run(train, {x: rng.normal(size=(4, 3)), ids: rng.integers(0, 7, 4)})
        runs += 1
    kept = {"begin": begin, "end": session.run([w, table]), "runs": runs}
np.savez(sys.argv[6], runs=runs, w0=kept["begin"][0], t0=kept["begin"][1], w=kept["end"][0], t=kept["end"][1])
"""


def free_addresses(count):
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in doors]
    for each in doors:
        each.close()
    return ",".join(addresses)


def start(program, *arguments):
    return subprocess.Popen([sys.executable, program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def finish(processes):
    outputs = []
    for each in processes:
        try:
            outputs.append(each.communicate(timeout=120)[0])
        except subprocess.TimeoutExpired:
            each.kill()
            outputs.append("TIMEOUT: " + each.communicate()[0])
    return outputs


@pytest.mark.parametrize("kind", ["sync", "plain"])
def test_two_workers_and_a_server_train_as_one(tmp_path, kind):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    addresses = free_addresses(3)
    results = [tmp_path / f"{i}.npz" for i in range(2)]
    processes = [start(program, "worker", i, addresses, kind, tmp_path / "run", results[i]) for i in range(2)]
    processes.append(start(program, "ps", 0, addresses, kind, tmp_path / "run", "-"))
    outputs = finish(processes)
    assert [each.returncode for each in processes] == [0, 0, 0], outputs
    assert "the server has ended" in outputs[2]
    assert ("averages all workers' gradients" in outputs[0]) == (kind == "plain")
    a, b = (np.load(each) for each in results)
    assert a["runs"] == b["runs"] == 5
    for name in ("w0", "t0", "w", "t"):
        np.testing.assert_array_equal(a[name], b[name])
    assert (a["t0"] == 0.25).all()  # the chief's
    w, table = expected(a["w0"], a["t0"])
    np.testing.assert_allclose(a["w"], w, rtol=1e-5)
    np.testing.assert_allclose(a["t"], table, rtol=1e-5)
    assert tf.train.latest_checkpoint(str(tmp_path / "run")).endswith("model.ckpt-5")


def expected(w, table):
    w, table = w.astype(np.float64), table.astype(np.float64)
    rngs = [np.random.default_rng(i) for i in range(2)]
    for _ in range(5):
        of_w, of_table = np.zeros_like(w), np.zeros_like(table)
        for rng in rngs:
            x, ids = rng.normal(size=(4, 3)).astype(np.float32), rng.integers(0, 7, 4)
            error = 2 * (x @ w + table[ids] - 1.0) / 4
            of_w += x.T @ error / 2
            np.add.at(of_table, ids, error / 2)
        w, table = w - 0.1 * of_w, table - 0.1 * of_table
    return w, table


def test_a_worker_that_dies_is_told(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.replace("        runs += 1\n", "        runs += 1\n        index and runs == 2 and os._exit(9)\n")
                       .replace("import sys\n", "import os, sys\n", 1))
    addresses = free_addresses(3)
    processes = [start(program, "worker", i, addresses, "sync", tmp_path / "run", tmp_path / f"{i}.npz") for i in range(2)]
    processes.append(start(program, "ps", 0, addresses, "sync", tmp_path / "run", "-"))
    outputs = finish(processes)
    assert processes[1].returncode == 9 and processes[0].returncode not in (0, None) and "TIMEOUT" not in outputs[0]
    assert processes[2].returncode == 0, outputs[2]
    assert "rank 1" in outputs[0] or "Unavailable" in outputs[0], outputs[0]


@pytest.mark.parametrize("where", ["before the others come", "in a step"])
def test_ctrl_c_ends_a_worker_that_waits_for_others(tmp_path, where):
    program = tmp_path / "train.py"
    begun = where == "in a step"
    before = "    while not session" if begun else "hooks = ["
    text = PROGRAM.replace(before, "    " * begun + "print('begun', flush=True)\n" + before, 1)
    program.write_text(text.replace("        runs += 1\n", "        runs += 1\n        import time; index and time.sleep(60)\n"))
    addresses = free_addresses(3)
    processes = [start(program, "ps", 0, addresses, "sync", tmp_path / "run", "-")]
    processes += [start(program, "worker", i, addresses, "sync", tmp_path / "run", tmp_path / f"{i}.npz")
                  for i in ((0, 1) if begun else (0,))]
    try:
        while "begun" not in processes[1].stdout.readline():
            assert processes[1].poll() is None
        time.sleep(1.5)
        at = time.monotonic()
        processes[1].send_signal(signal.SIGINT)
        output = processes[1].communicate(timeout=50)[0]
        # Without it the wait takes the minute that the others sleep, or ten.
        assert time.monotonic() - at < 30 and "KeyboardInterrupt" in output, output
    finally:
        for each in processes:
            each.kill()
            each.communicate()


@pytest.mark.parametrize("arguments, message", [
    (dict(job_name="workers", task_index=0), "no job 'workers'"),
    (dict(job_name="worker", task_index=2), "has 2 tasks, not number 2"),
])
def test_tasks_that_are_not_in_the_cluster_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tf.train.Server({"worker": ["a:1", "b:2"]}, **arguments)


def test_a_worker_has_nobody_to_join():
    server = tf.train.Server({"worker": ["127.0.0.1:1"]}, job_name="worker", task_index=0)
    try:
        with pytest.raises(ValueError, match="only a ps task"):
            server.join()
        with pytest.raises(ValueError, match="is a task already"):
            tf.train.Server({"worker": ["127.0.0.1:1"]}, job_name="worker", task_index=0)
    finally:
        server._end()


def test_replicas_without_a_server_are_refused():
    with pytest.raises(ValueError, match="replicas_to_aggregate is 4, and 1 workers"):
        tf.train.SyncReplicasOptimizer(tf.train.AdamOptimizer(), 4)


def test_a_supervisor_restores_what_it_saved(tmp_path):
    for first in (0, 3):
        tf.reset_default_graph()
        step = tf.train.get_or_create_global_step()
        w = tf.Variable(0.0, name="w")
        train = tf.train.GradientDescentOptimizer(0.5).minimize(tf.square(w - 1.0), global_step=step)
        supervisor = tf.train.Supervisor(logdir=str(tmp_path), global_step=step)
        with supervisor.managed_session() as session:
            assert int(session.run(step)) == first
            for _ in range(3):
                session.run(train)
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("-6")
