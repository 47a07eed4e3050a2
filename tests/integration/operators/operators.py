#!/usr/bin/env python3
"""Jobs in exactly the environments that Kubeflow's training operator (TFJob 1.9), its MPI operator (MPIJob v2beta1) and
JobSet make, with pods as network namespaces: names from DNS, pods late and in any order, an address that changes,
SIGTERM, workers that come and go, and only the ports that are fixed. And `braid launch --hosts` between such pods.

operators.py --braid BINARY. Exit code 77, which CTest takes for skipped, where there are no namespaces."""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import pods

ROOT = pathlib.Path(__file__).resolve().parents[3]
JOB = ROOT / "examples" / "jobs" / "wide_deep_generated.pbtxt"
TOKEN = "the-token-of-a-secret-1234567890"
faults = 0


def expect(what, holds, value=None):
    global faults
    print(f"{'ok  ' if holds else 'FAIL'} {what}" + ("" if holds else f": {value}"), flush=True)
    faults += not holds


def tail(pod):
    return "\n" + "\n".join(pod.text().splitlines()[-8:])


def command(braid, folder, sets, resume=True):
    every = ["epochs=0", "runtime.device=CPU", "runtime.intra_op_threads=1", "evaluation.enabled=false",
             f"checkpoint.directory={folder}/checkpoints", "checkpoint.every_steps=50", "strategy.start_deadline_seconds=120",
             'strategy.data_ports=2223-2242', *sets]
    words = [braid, "train", "--job", str(JOB)] + (["--resume"] if resume else [])
    for each in every:
        words += ["--set", each]
    return words


# ---- what the operators set ----


def tfjob_variables(name, counts, job, index):
    """pkg/controller.v1/tensorflow/tensorflow.go of the training operator: genTFConfigJSONStr."""
    cluster = {kind: [f"{name}-{kind}-{i}.default.svc:2222" for i in range(count)] for kind, count in counts.items()}
    config = {"cluster": cluster, "task": {"type": job, "index": index}, "environment": "cloud"}
    return {"TF_CONFIG": json.dumps(config), "BRAID_HTTP": "0.0.0.0:8080", "BRAID_TOKEN": TOKEN}


def sparse_variables(name, servers, job, index):
    """The same with enableDynamicWorker: a worker knows itself and the servers, a server itself alone."""
    cluster = {"worker": {str(index): f"{name}-worker-{index}.default.svc:2222"},
               "ps": [f"{name}-ps-{i}.default.svc:2222" for i in range(servers)]}
    if job == "ps":
        cluster = {"worker": {}, "ps": [f"{name}-ps-{index}.default.svc:2222"]}
    return {"TF_CONFIG": json.dumps({"sparseCluster": cluster, "task": {"type": job, "index": index}}),
            "BRAID_TOKEN": TOKEN}


def jobset_variables(name, counts, job, index):
    """Our manifest's TF_CONFIG, which the kubelet completes, and the variable that Jobs append."""
    cluster = {kind: [f"{name}-{kind}-0-{i}.{name}:2222" for i in range(n)] for kind, n in counts.items() if n}
    config = json.dumps({"cluster": cluster, "task": {"type": job, "index": "$(TASK_INDEX)"}})
    return {"TASK_INDEX": str(index), "TF_CONFIG": config.replace("$(TASK_INDEX)", str(index)),
            "BRAID_HTTP": "0.0.0.0:8080", "BRAID_TOKEN": TOKEN, "JOB_COMPLETION_INDEX": str(index)}


# ---- cases ----


def start_tfjob(network, braid, sets, counts, order, late=0.0):
    """Pods in that order; a pod's name resolves when it runs."""
    started = {}
    for job, index in order:
        pod = network.pod(f"braid-{job}-{index}")
        pod.start(command(braid, network.folder, sets), tfjob_variables("braid", counts, job, index))
        network.publish(f"{pod.name}.default.svc", pod.address)
        started[job, index] = pod
        time.sleep(late)
    return started


def ends(what, started, codes, seconds=240):
    for (job, index), pod in started.items():
        code = pod.wait(seconds)
        expect(f"{what}: {job} {index} ends with {codes}", code in codes, f"{code}{tail(pod)}")


def tfjob(braid, folder):
    """Servers last, and seconds after the workers; then all are told to go."""
    network = pods.Network(folder)
    counts = {"chief": 1, "worker": 2, "ps": 1}
    order = [("worker", 1), ("chief", 0), ("worker", 0), ("ps", 0)]
    sets = ["strategy.kind=PS", "steps=100000000"]
    started = start_tfjob(network, braid, sets, counts, order, late=1.5)
    chief = started["chief", 0]
    expect("tfjob: late pods find each other", chief.says("checkpoint of step 50"), tail(chief))
    for who, pod in started.items():
        ports = pod.listening()
        expect(f"tfjob: {who} listens on fixed ports", ports <= {2222, 8080} | set(range(2223, 2243)), ports)
    for pod in started.values():
        pod.terminate()
    ends("tfjob: SIGTERM", started, {143})
    saved = sorted(path.name for path in (network.folder / "checkpoints").glob("step-*"))
    expect("tfjob: SIGTERM leaves a checkpoint", bool(saved), saved)
    network.close()


def tfjob_moves(braid, folder):
    """A worker is lost; restartPolicy ExitCode starts it, and who leaves with it, again, at other addresses."""
    network = pods.Network(folder)
    counts = {"chief": 1, "worker": 1, "ps": 1}
    order = [("ps", 0), ("chief", 0), ("worker", 0)]
    sets = ["strategy.kind=PS", "steps=3000", "strategy.deadline_seconds=10"]
    started = start_tfjob(network, braid, sets, counts, order)
    expect("tfjob moves: trains", started["chief", 0].says("checkpoint of step 100"), tail(started["chief", 0]))
    started["worker", 0].kill()
    codes = restart_as_operator(network, braid, sets, counts, started)
    expect("tfjob moves: the worker was killed", codes["worker", 0][0] == 137, codes)
    expect("tfjob moves: all end well", all(code[-1] == 0 for code in codes.values()),
           f"{codes}{tail(started['chief', 0])}{tail(started['worker', 0])}")
    expect("tfjob moves: its successor goes on from a checkpoint", "resumed at step" in started["worker", 0].text(),
           tail(started["worker", 0]))
    network.close()


def restart_as_operator(network, braid, sets, counts, started, backoff_limit=6):
    """restartPolicy ExitCode: a pod that ends with more than 127 gets a successor, which has another address. When the
    chief has ended well the servers' pods are cleaned up (cleanPodPolicy Running). Gives the codes of each task."""
    codes = {task: [] for task in started}
    end = time.time() + 240
    while time.time() < end and started["chief", 0].process.poll() != 0:
        for task, pod in list(started.items()):
            code = pod.process.poll()
            if code is None or (codes[task] and codes[task][-1] < 128):
                continue
            codes[task].append(code if code >= 0 else 128 - code)
            if codes[task][-1] > 127 and len(codes[task]) <= backoff_limit:
                before = pod.address
                started.update(start_tfjob(network, braid, sets, counts, [task]))
                expect(f"tfjob moves: {task} has another address", started[task].address != before)
        time.sleep(0.2)
    for task, pod in started.items():
        code = pod.wait(60)
        if codes[task][-1:] != [0]:
            codes[task].append(code)
    return codes


def tfjob_dynamic(braid, folder):
    """Workers that come, are lost and go (enableDynamicWorker); a job that is not elastic is refused."""
    network = pods.Network(folder)
    pod = network.pod("braid-worker-3")
    pod.start(command(braid, folder, ["strategy.kind=PS", "steps=10"]), sparse_variables("braid", 1, "worker", 3))
    code = pod.wait(60)
    expect("tfjob dynamic: bad input", code == 2, f"{code}{tail(pod)}")
    expect("tfjob dynamic: says how", "workers come and go with strategy.elastic" in pod.text(), tail(pod))

    sets = ["strategy.kind=PS", "strategy.consistency=ASP", "strategy.elastic.max_workers=4", "input.shard=DYNAMIC",
            "input.carry_remainder=false", "input.global_batch_size=256", "strategy.deadline_seconds=5", "steps=6000"]
    started = {}

    def start(job, index):
        pod = network.pod(f"braid-{job}-{index}")
        pod.start(command(braid, network.folder, sets), sparse_variables("braid", 2, job, index))
        network.publish(f"{pod.name}.default.svc", pod.address)
        started[job, index] = pod
        return pod

    for task in (("worker", 0), ("ps", 1), ("ps", 0)):
        start(*task)
    leader = started["worker", 0]
    expect("tfjob dynamic: trains", leader.says("checkpoint of step 50"), tail(leader))
    lost = start("worker", 3)
    expect("tfjob dynamic: a worker comes", lost.says("handed over"), tail(lost))
    time.sleep(1)
    lost.kill()
    again = start("worker", 3)
    expect("tfjob dynamic: it comes again", again.says("handed over"), tail(again))
    ends("tfjob dynamic", started, {0})
    network.close()


def jobset(braid, folder):
    """A ring of workers; a pod's name resolves before it is ready."""
    network = pods.Network(folder)
    started = {}
    for index in (2, 0, 1):
        pod = network.pod(f"braid-worker-0-{index}")
        network.publish(f"{pod.name}.braid", pod.address)
        sets = ["strategy.kind=ALLREDUCE", "steps=100", "input.global_batch_size=96"]
        pod.start(command(braid, network.folder, sets), jobset_variables("braid", {"worker": 3}, "worker", index))
        started["worker", index] = pod
    ends("jobset", started, {0})
    losses = {re.search(r'"loss":([^,]+)', pod.text())[1] for pod in started.values() if '"loss"' in pod.text()}
    expect("jobset: the workers have one loss", len(losses) == 1, losses)
    network.close()


def ssh_agent(network, hosts):
    """A program that does as ssh, by entering the pod's namespaces. `hosts`: the name that it is asked for -> pod."""
    cases = "".join(f"{name}) pid={pod.holder.pid};;\n" for name, pod in hosts.items())
    agent = network.folder / "ssh"
    agent.write_text("#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do [ \"$1\" = -o ] && shift; shift; done\nhost=$1; shift\ncase $host in\n" + cases
                     + "*) echo \"no host $host\" >&2; exit 255;;\nesac\nexec setsid -w nsenter -t $pid -n -m -u sh -c \"$*\"\n")
    agent.chmod(0o755)
    return agent


def mpijob(braid, folder):
    """The launcher's host file, and its ssh, which enters the pods' namespaces."""
    if not shutil.which("mpirun"):
        print("left out: mpijob (no mpirun)")
        return
    network = pods.Network(folder)
    workers = [network.pod(f"braid-worker-{i}") for i in range(2)]
    launcher = network.pod("braid-launcher")
    for pod in workers:
        network.publish(f"{pod.name}.braid.default.svc", pod.address)
    agent = ssh_agent(network, {f"{p.name}.braid.default.svc": p for p in workers})
    hostfile = network.folder / "hostfile"
    hostfile.write_text("".join(f"{p.name}.braid.default.svc slots=1\n" for p in workers))
    # pkg/controller of the MPI operator, ompiEnvVars and the launcher's.
    variables = {"OMPI_MCA_orte_keep_fqdn_hostnames": "true", "OMPI_MCA_orte_default_hostfile": str(hostfile),
                 "OMPI_MCA_plm_rsh_agent": str(agent), "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
                 "BRAID_HTTP": "0.0.0.0:8080", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    words = ["mpirun", "-np", "2", "--bind-to", "none", "--map-by", "slot", "-mca", "pml", "ob1", "-mca", "btl", "^openib",
             "-mca", "odls_base_sigkill_timeout", "100", "-x", "BRAID_HTTP"]
    sets = ["strategy.kind=ALLREDUCE", "strategy.backend=MPI", "steps=50"]
    launcher.start(words + command(braid, network.folder, sets), variables)
    code = launcher.wait()
    expect("mpijob: ends well", code == 0, f"{code}{tail(launcher)}")
    result, count = result_in(launcher.text())
    expect("mpijob: one result of the job", count == 1, count)
    expect("mpijob: with both tasks in it", [t["task"] for t in result.get("tasks", [])] == ["worker 0", "worker 1"], result)
    network.close()


def result_in(text):
    lines = [line for line in text.splitlines() if line.startswith("result: ")]
    return (json.loads(lines[0][8:]) if lines else {}), len(lines)


def hosts(braid, folder):
    """braid launch --hosts: hosts of their own networks, ssh into them, and no token that somebody has set."""
    network = pods.Network(folder)
    nodes = [network.pod(f"node-{i}") for i in range(2)]
    for node in nodes:
        network.publish(node.name, node.address)
    agent = ssh_agent(network, {node.name: node for node in nodes})
    file = network.folder / "hosts.txt"
    file.write_text("".join(f"{node.name} slots=1\n" for node in nodes))

    def launch(name, steps):
        words = command(braid, network.folder, ["strategy.kind=PS", f"steps={steps}"])
        return network.pod(name).start([braid, "launch", "--hosts", str(file), "--ssh", str(agent), "--ps", "2",
                                        "--grace", "5", "--first-port", "2300", "--", *words[1:]], {})

    launcher = launch("launcher-0", 300)
    ports = set()
    while launcher.process.poll() is None:
        ports |= nodes[0].listening() | nodes[1].listening()
        time.sleep(0.2)
    code = launcher.wait()
    expect("hosts: ends well", code == 0, f"{code}{tail(launcher)}")
    result, count = result_in(launcher.text())
    expect("hosts: one result of the job", count == 1, launcher.text()[-2000:])
    tasks = [task["task"] for task in result.get("tasks", [])]
    expect("hosts: with all tasks in it", {"worker 0", "worker 1"} <= set(tasks), result)
    expect("hosts: tasks listen beyond the loopback", bool(ports), ports)
    expect("hosts: on fixed ports", ports <= set(range(2300, 2304)) | set(range(2223, 2243)), ports)

    launcher = launch("launcher-1", 100000000)
    expect("hosts: trains again", launcher.says("resumed at step"), tail(launcher))
    deadline = time.time() + 60
    while not all(node.listening() for node in nodes) and time.time() < deadline:
        time.sleep(0.1)
    expect("hosts: both listen", all(node.listening() for node in nodes))
    launcher.kill()
    deadline = time.time() + 60
    while any(node.listening() for node in nodes) and time.time() < deadline:
        time.sleep(0.2)
    expect("hosts: nobody listens when the launcher was killed", not any(node.listening() for node in nodes),
           [node.listening() for node in nodes])
    network.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--braid", required=True)
    parser.add_argument("--case")
    options = parser.parse_args()
    cases = {case.__name__: case for case in (tfjob, tfjob_moves, tfjob_dynamic, jobset, mpijob, hosts)}
    if not options.case:  # each in namespaces of its own
        codes = [subprocess.run([sys.executable, __file__, "--braid", options.braid, "--case", name]).returncode
                 for name in cases]
        return 77 if 77 in codes else max(codes)
    pods.inside()
    with tempfile.TemporaryDirectory() as folder:
        cases[options.case](options.braid, pathlib.Path(folder))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
