"""Between-graph replication: ClusterSpec, Server, and what several workers' programs have in common.

Each worker builds the same graph over variables of its own, which begin with the chief's values; gradients are averaged over
the workers before they are applied, in every step. So all replicas are the same after each step, as SyncReplicasOptimizer
makes them. Parameter servers hold nothing: the chief keeps a connection to each, and their join() returns when that ends.
"""

import atexit
import socket
import time

import numpy as np

from braid import _braid
from braid.compat.v1 import errors as _errors
from braid.compat.v1._config import say_once
from braid.graph import default_graph

_DEADLINE = 3600.0  # seconds that a task waits for the others to begin
_PATIENCE = 600.0   # and within steps
_HELLO = b"braid chief\n"
_server = None


class ClusterSpec:
    """tf.train.ClusterSpec: job names to addresses."""

    def __init__(self, cluster):
        self._cluster = {name: list(tasks.values() if isinstance(tasks, dict) else tasks)
                         for name, tasks in (cluster.as_dict() if isinstance(cluster, ClusterSpec) else cluster).items()}
        for name, tasks in self._cluster.items():
            for task in tasks:
                if task.count(":") != 1:
                    raise ValueError(f"ClusterSpec: '{task}' of job '{name}' is not host:port; is a comma missing?")

    def as_dict(self):
        return {name: list(tasks) for name, tasks in self._cluster.items()}

    @property
    def jobs(self):
        return sorted(self._cluster)

    def num_tasks(self, job_name):
        return len(self._cluster[job_name])

    def job_tasks(self, job_name):
        return list(self._cluster[job_name])

    def task_address(self, job_name, task_index):
        return self._cluster[job_name][task_index]


class Server:
    """tf.train.Server: makes this process a task of the cluster. Tasks meet when the first session with its target
    begins."""

    def __init__(self, server_or_cluster_def, job_name=None, task_index=None, protocol=None, config=None, start=True):
        global _server
        cluster = ClusterSpec(server_or_cluster_def)
        if job_name is None and len(cluster.jobs) == 1:
            job_name = cluster.jobs[0]
        if job_name not in cluster.jobs:
            raise _errors.InvalidArgumentError(f"Server: the cluster has no job '{job_name}': it has {cluster.jobs}")
        task_index = 0 if task_index is None and cluster.num_tasks(job_name) == 1 else task_index
        if task_index is None or not 0 <= task_index < cluster.num_tasks(job_name):
            raise _errors.InvalidArgumentError(f"Server: job '{job_name}' has {cluster.num_tasks(job_name)} tasks, not "
                                               f"number {task_index}")
        others = set(cluster.jobs) - {"chief", "master", "worker", "ps", "evaluator"}
        if others:
            raise _errors.InvalidArgumentError(f"Server: jobs are chief, worker, ps and evaluator, not {sorted(others)}")
        self.cluster, self.job_name, self.task_index = cluster, job_name, task_index
        self._workers = [(name, i) for name in ("chief", "master", "worker") if name in cluster.jobs
                         for i in range(cluster.num_tasks(name))]
        self._peers, self._door, self._held = None, None, []
        if (job_name, task_index) in self._workers:
            if _server is not None:
                raise _errors.InvalidArgumentError("Server: this process is a task already")
            _server = self
            atexit.register(self._end)
        else:
            host, port = self._address((job_name, task_index)).rsplit(":", 1)
            try:
                self._door = socket.create_server((host if host in ("127.0.0.1", "localhost") else "", int(port)))
            except OSError as error:
                raise _errors.UnavailableError(f"Server: {job_name} {task_index} cannot listen at port {port}: {error}")

    def _address(self, task):
        return self.cluster.task_address(*task)

    @property
    def target(self):
        return "grpc://" + self.cluster.task_address(self.job_name, self.task_index)

    @property
    def world(self):
        return len(self._workers)

    def start(self):
        pass

    def peers(self):
        """The other workers; waits for all of them, and the chief for the servers. None where there are none."""
        if (self.job_name, self.task_index) == self._workers[0] and not self._held:
            for index in range(self.cluster.num_tasks("ps") if "ps" in self.cluster.jobs else 0):
                self._held.append(self._connect(index))
        if self._peers is None and self.world > 1:
            jobs = {}
            for name, index in self._workers:
                jobs.setdefault("chief" if name == "master" else name, []).append(self._address((name, index)))
            text = ";".join(f"{name}={','.join(addresses)}" for name, addresses in jobs.items())
            job = "chief" if self.job_name == "master" else self.job_name
            self._peers = _braid.meet_peers(text, f"{job}:{self.task_index}", _PATIENCE)
        return self._peers

    def _connect(self, index):
        host, port = self._address(("ps", index)).rsplit(":", 1)
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                held = socket.create_connection((host, int(port)), 5)
                held.sendall(_HELLO)
                return held
            except OSError as error:
                if time.monotonic() > deadline:
                    raise _errors.DeadlineExceededError(f"ps {index} at {host}:{port} has not begun within "
                                                        f"{_PATIENCE:.0f} s: {error}")
                time.sleep(0.2)

    def join(self):
        """Of a server: returns when the cluster's chief has been there and is gone."""
        if self._door is None or not self._workers:
            raise _errors.InvalidArgumentError("Server.join: only a ps task of a cluster with workers is ended by them")
        deadline = time.monotonic() + _DEADLINE
        while True:
            self._door.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                chief, _ = self._door.accept()
            except TimeoutError:
                job, index = self._workers[0]
                raise _errors.DeadlineExceededError(f"Server.join: {job} {index} has not come within {_DEADLINE:.0f} s")
            with chief:
                try:
                    chief.settimeout(5)
                    if chief.recv(len(_HELLO)) != _HELLO:
                        continue  # somebody else
                    chief.settimeout(None)
                    while chief.recv(16):
                        pass
                except OSError:  # it went without a word
                    pass
                return

    def _end(self):
        global _server
        _server = self._peers = None
        while self._held:
            self._held.pop().close()


def world():
    """How many workers train together with this process."""
    return 1 if _server is None else _server.world


def peers():
    return None if _server is None else _server.peers()


def averaged(grads_and_vars):
    """[(gradient, variable)] with gradients that are the workers' mean, rows as (indices, values)."""
    workers = world()
    given = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
    if workers == 1 or not given:
        return grads_and_vars
    graph = default_graph()
    share = 1.0 / workers
    dense = [(gradient, variable) for gradient, variable in given if not isinstance(gradient, tuple)]
    made, before = [], graph.collections.setdefault("__collectives", [])

    def collective(op, inputs):
        node = graph.add(op, inputs, {"world": workers}, "workers/" + op.rsplit(".", 1)[1], control=before[-1:])
        before.append(node)
        return node.outputs

    if dense:
        sums = collective("braid.AllReduce", [gradient for gradient, _ in dense])
        made += [(total * share, variable) for total, (_, variable) in zip(sums, dense)]
    for gradient, variable in given:
        if isinstance(gradient, tuple):
            indices, values = collective("braid.AllGatherRows", list(gradient))
            made.append(((indices, values * share), variable))
    return made


def share_values(session):
    """The chief's variables become everybody's."""
    group = peers()
    if group is None:
        return
    for variable in session.graph.variables:
        if variable.dtype.numpy is None or variable.dtype.numpy.kind not in "fi":
            continue
        value = session.value(variable)
        known = group.broadcast(np.asarray(0 if value is None else 1, np.int64).reshape(1))
        if value is None:
            value = np.zeros(variable.shape, variable.dtype.numpy)
        value = group.broadcast(np.ascontiguousarray(value).reshape(-1)).reshape(value.shape)
        if known[0]:
            session.assign(variable, value)


class NoServers:
    """What replica_device_setter gives: variables of all servers' names are this process's own."""

    device = ""

    def __call__(self, op):
        return ""


def replica_device_setter(*_, **__):
    """tf.train.replica_device_setter: places nothing."""
    say_once("replica_device_setter: variables are each worker's own, and gradients are averaged over the workers")
    return NoServers()

