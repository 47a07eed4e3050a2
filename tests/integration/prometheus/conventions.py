#!/usr/bin/env python3
"""The metrics of a real job, read by the parser of Prometheus' Python client, are as Prometheus' conventions ask.

conventions.py --braid BINARY. Exit code 77, which CTest takes for skipped, without the package prometheus-client."""

import argparse
import json
import math
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError as error:
    print(f"skipped: {error} (pip install -r tests/integration/requirements.txt, and BRAID_PYTHON)")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[3]
SECONDS = 180
NAME = re.compile(r"^(braid|process)_[a-z][a-z0-9_]*$")
LABEL = re.compile(r"^[a-z][a-z0-9_]*$")
NO_BASE_UNIT = re.compile(r"_(ms|us|ns|millis\w*|micros\w*|minutes|hours|kb|mb|gb|kib|mib|gib|percent)(_|$)")
PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds"}
OF_WORKERS = {"braid_steps_total", "braid_examples_total", "braid_loss", "braid_step", "braid_target_steps",
              "braid_learning_rate", "braid_checkpoint_timestamp_seconds", "braid_checkpoint_seconds_count"}
faults = 0


def expect(what, holds, value=None):
    global faults
    if not holds:
        print(f"FAIL {what}: {value}")
        faults += 1


def scrape(address):
    reply = urllib.request.urlopen(f"http://{address}/metrics", timeout=10)
    expect("the content's type", reply.headers["Content-Type"].startswith("text/plain; version=0.0.4"),
           reply.headers["Content-Type"])
    text = reply.read().decode()
    families = list(text_string_to_metric_families(text))
    names = [f.name for f in families]
    expect("each family is there once", len(set(names)) == len(names), [n for n in names if names.count(n) > 1])
    return text, {f.name: f for f in families}


def samples(families):
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families.values() for s in f.samples}


def check_families(who, text, families):
    for family in families.values():
        where = f"{who}: {family.name}"
        full = family.name + "_total" if family.type == "counter" else family.name
        expect(f"{where}: its name", NAME.match(full), full)
        expect(f"{where}: base units", not NO_BASE_UNIT.search(full), full)
        expect(f"{where}: a type", family.type in {"counter", "gauge", "histogram", "summary"}, family.type)
        expect(f"{where}: help that is a sentence", family.documentation.strip().endswith("."), family.documentation)
        expect(f"{where}: a gauge is no _total", family.type == "counter" or not full.endswith("_total"), family.type)
        expect(f"{where}: counters end in _total", f"# TYPE {full} {family.type}" in text, family.type)
        seen = set()
        for sample in family.samples:
            expect(f"{where}: labels", all(LABEL.match(label) for label in sample.labels), sample.labels)
            key = (sample.name, tuple(sorted(sample.labels.items())))
            expect(f"{where}: one sample a label set", key not in seen, key)
            seen.add(key)
            expect(f"{where}: a number", not math.isnan(sample.value), key)
            if family.type == "counter":
                expect(f"{where}: counts from 0", sample.value >= 0, sample.value)


def check_role(task, families):
    names = {s.name for f in families.values() for s in f.samples}
    expect(f"{task}: process metrics", PROCESS <= names, PROCESS - names)
    info = families.get("braid_job_info")
    labels = info.samples[0].labels if info else {}
    expect(f"{task}: job_info says who it is", info and info.samples[0].value == 1 and
           f"{labels['role']} {labels['index']}" == task and labels["job"] == "wide_deep_generated", labels)
    if task.startswith("worker"):
        wanted = OF_WORKERS if task == "worker 0" else {n for n in OF_WORKERS if "checkpoint" not in n}
        expect(f"{task}: metrics of a worker", wanted <= names, wanted - names)
        expect(f"{task}: none of a server", not [n for n in names if n.startswith("braid_ps_")], sorted(names))
    else:
        expect(f"{task}: metrics of a server", any(n.startswith("braid_ps_") for n in names), sorted(names))
        expect(f"{task}: none of a worker", not OF_WORKERS & names, OF_WORKERS & names)
    network = {s.labels.get("direction") for s in families["braid_network_bytes"].samples}
    expect(f"{task}: bytes of both directions", len(network) == 2, network)


def wait_for(what, get):
    end = time.time() + SECONDS
    while time.time() < end:
        try:
            if value := get():
                return value
        except OSError:
            pass
        time.sleep(0.2)
    sys.exit(f"FAIL {what}: not within {SECONDS} s")


def peers_of(log):
    def look():
        log.seek(0)
        return re.search(r"braid top (\S+)", log.read())

    address = wait_for("the address of the job", look).group(1)

    def tasks():
        job = json.load(urllib.request.urlopen(f"http://{address}/job.json", timeout=5))
        ready = [p for p in job["peers"] if p.get("status")]
        saved = any(p["status"].get("checkpoints", {}).get("saved") for p in ready)
        return {p["task"]: p["address"] for p in ready} if len(ready) == 3 and saved else None

    return wait_for("two workers, a server and a checkpoint", tasks)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--braid", required=True)
    braid = parser.parse_args().braid
    job = ROOT / "examples" / "jobs" / "wide_deep_generated.pbtxt"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
        command = [braid, "launch", "--workers", "2", "--ps", "1", "--watch", "--grace", "5", "--", "train", "--job", job]
        for each in ["strategy.kind=PS", "steps=10000000", "epochs=0", "evaluation.enabled=false", "runtime.device=CPU",
                     "runtime.intra_op_threads=1", f"checkpoint.directory={folder}/ck", "checkpoint.every_steps=50"]:
            command += ["--set", each]
        launcher = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            tasks = peers_of(log)
            before = {task: scrape(address) for task, address in tasks.items()}
            time.sleep(2)
            for task, address in tasks.items():
                text, families = scrape(address)
                check_families(task, text, families)
                check_role(task, families)
                old, new = samples(before[task][1]), samples(families)
                for key in [k for k in old if k[0].endswith("_total") and k in new]:
                    expect(f"{task}: {key[0]} never goes down", new[key] >= old[key], (old[key], new[key]))
                print(f"{task}: {len(families)} families, {len(new)} samples")
        finally:
            launcher.send_signal(signal.SIGINT)
            launcher.wait(90)
    print(f"{faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
