#!/usr/bin/env python3
"""A real Prometheus scrapes a real job of 2 workers and a server, with the alert rules of k8s/monitoring, and every
query of its dashboards is asked.

scrape.py --braid BINARY. Exit code 77, which CTest takes for skipped, without prometheus."""

import argparse
import json
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
MONITORING = ROOT / "k8s" / "monitoring"
SECONDS = 180
# Queries of things that this job does not have.
ABSENT = re.compile(r"device|sampled|refused|braid_ps_pushes_stale_total")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port, path, **query):
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    return json.load(urllib.request.urlopen(url, timeout=10))["data"]


def wait_for(what, get):
    end = time.time() + SECONDS
    while time.time() < end:
        try:
            if value := get():
                return value
        except OSError:
            pass
        time.sleep(0.3)
    raise SystemExit(f"FAIL {what}: not within {SECONDS} s")


def pages_of(log):
    def look():
        log.seek(0)
        return re.search(r"braid top (\S+)", log.read())

    address = wait_for("the address of the job", look).group(1)
    job = wait_for("the job", lambda: json.load(urllib.request.urlopen(f"http://{address}/job.json", timeout=5)))
    return [peer["address"] for peer in job["peers"]]


def examine(port, pages):
    faults = 0

    def expect(what, holds, value):
        nonlocal faults
        print(f"{'ok  ' if holds else 'FAIL'} {what}" + ("" if holds else f": {value}"))
        faults += not holds

    wait_for("three targets are up", lambda: sum(float(s["value"][1]) for s in ask(port, "query", query="up")["result"]) == len(pages))
    def stepping():
        found = ask(port, "query", query="rate(braid_steps_total[20s]) > 0")["result"]
        return len(found) == 2

    wait_for("both workers make steps", stepping)
    named = ask(port, "query", query="braid_loss * on (instance) group_left (job, index) braid_job_info")["result"]
    expect("losses have the job's name", {s["metric"].get("job") for s in named} == {"wide_deep_generated"}, named)
    servers = ask(port, "query", query='braid_job_info{role="ps"}')["result"]
    expect("the server says that it is one", len(servers) == 1, servers)
    expect("a server has no loss", len(ask(port, "query", query="braid_loss")["result"]) == 2, None)
    rules = ask(port, "rules")["groups"]
    expect("the alert rules are loaded and well", all(r["health"] != "err" for g in rules for r in g["rules"]), rules)
    time.sleep(15)  # for rates over a minute
    for file in sorted((MONITORING / "dashboards").glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel["targets"]:
                query = target["expr"].replace("$job", "wide_deep_generated")
                found = ask(port, "query", query=query)["result"]
                expect(f"{file.stem}: {panel['title']}", found or ABSENT.search(query), query)
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--braid", required=True)
    braid = parser.parse_args().braid
    prometheus = shutil.which("prometheus")
    if not prometheus:
        print("skipped: no prometheus (apt-get install prometheus)")
        return 77
    job = ROOT / "examples" / "jobs" / "wide_deep_generated.pbtxt"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
        command = [braid, "launch", "--workers", "2", "--ps", "1", "--watch", "--grace", "5", "--", "train", "--job", job]
        for each in ["strategy.kind=PS", "steps=10000000", "epochs=0", "evaluation.every_steps=200", "streams.policy=COST",
                     "runtime.device=CPU", "runtime.intra_op_threads=1", f"checkpoint.directory={folder}/ck",
                     "checkpoint.every_seconds=5"]:
            command += ["--set", each]
        launcher = subprocess.Popen(command, stdout=log, stderr=log)
        server = None
        try:
            pages = pages_of(log)
            config = {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(MONITORING / "alerts.yaml")],
                "scrape_configs": [
                    {"job_name": "braid", "honor_labels": True, "static_configs": [{"targets": pages}]}
                ],
            }
            (pathlib.Path(folder) / "prometheus.yml").write_text(json.dumps(config))
            port = free_port()
            server = subprocess.Popen(
                [prometheus, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address=127.0.0.1:{port}"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            faults = examine(port, pages)
        finally:
            if server:
                server.terminate()
                server.wait(30)
            launcher.send_signal(signal.SIGINT)
            launcher.wait(60)
    print(f"{faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
