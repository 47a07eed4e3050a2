#!/usr/bin/env python3
"""Looks at the page of a running job in headless Chromium: 1 server and 3 workers, and 64 simulated workers.

look.py --braid BINARY [--shots FOLDER]. Fails when something that the page should show is not in its document, or when
a script of it throws. Exit code 77, which CTest takes for skipped, without Chromium."""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import simulated_job

ROOT = pathlib.Path(__file__).resolve().parents[3]
BROWSERS = ["chromium", "chromium-browser", "google-chrome"]
SECONDS = 240


def browse(browser, url, shot, height):
    """The document after a few seconds, and what its console said."""
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
            f"--user-data-dir={profile}", f"--window-size=1400,{height}", "--virtual-time-budget=8000", "--enable-logging=stderr",
        ]
        if shot:
            subprocess.run([*command, f"--screenshot={shot}", url], capture_output=True, timeout=SECONDS, check=True)
        done = subprocess.run([*command, "--dump-dom", url], capture_output=True, text=True, timeout=SECONDS, check=True)
        console = re.findall(r"CONSOLE[^\n]*", done.stderr)
        return done.stdout, [line for line in console if "Uncaught" in line or "Refused" in line or "rror" in line]


def expect(what, holds, document):
    print(f"{'ok  ' if holds else 'FAIL'} {what}")
    if not holds:
        print(document[:3000])
    return not holds


def look_at_simulated(browser, shots):
    server = simulated_job.serve(64, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shot = shots and shots / "page-64.png"
    document, errors = browse(browser, f"http://127.0.0.1:{server.server_port}/", shot, 1800)
    server.shutdown()
    cards = document.count('class="worker')
    faults = expect("64 simulated workers have a card each", cards == 64, document)
    faults += expect("the dead one says so", "no answer in time" in document, document)
    faults += expect("GPUs are a table", "A card" in document and "64 °C" in document, document)
    faults += expect("their batches' copies are, too", "/s, 98 % hidden" in document, document)
    warning = document[document.find('id="warnings"'):]
    said = "input-bound: 43 % of the compute" in warning and "try staging.num_threads: 4" in warning
    faults += expect("what limits the job is said, with the setting to change", said, warning)
    faults += expect(f"no script throws {errors}", not errors, document)
    return faults


def wait_for_job(address):
    end = time.time() + SECONDS
    while time.time() < end:
        try:
            job = json.load(urllib.request.urlopen(f"http://{address}/job.json", timeout=5))
            training = [p for p in job["peers"] if p.get("status", {}).get("steps_per_second", 0) > 0]
            if len(training) == 3 and training[0]["status"]["uptime_seconds"] > 15:
                return
        except OSError:
            pass
        time.sleep(0.5)
    raise SystemExit("the job does not train")


def look_at_job(browser, braid, shots):
    job = ROOT / "examples" / "jobs" / "wide_deep_generated.pbtxt"
    settings = ["strategy.kind=PS", "steps=10000000", "epochs=0", "evaluation.every_steps=200", "streams.policy=COST",
                "runtime.device=CPU", "runtime.intra_op_threads=1"]
    command = [braid, "launch", "--workers", "3", "--ps", "1", "--watch", "--grace", "5", "--", "train", "--job", job]
    for each in settings:
        command += ["--set", each]
    with tempfile.TemporaryFile("w+") as log, subprocess.Popen(command, stdout=log, stderr=log) as launcher:
        try:
            address = None
            end = time.time() + SECONDS
            while not address and time.time() < end:
                time.sleep(0.2)
                log.seek(0)
                found = re.search(r"braid top (\S+)", log.read())
                address = found and found.group(1)
            wait_for_job(address)
            shot = shots and shots / "page-1-3.png"
            document, errors = browse(browser, f"http://{address}/#all", shot, 2100)
        finally:
            launcher.send_signal(signal.SIGINT)
            launcher.wait(60)
    faults = 0
    for task in ["worker 0", "worker 1", "worker 2", "ps 0"]:
        faults += expect(f"{task} is shown", task in document, document)
    faults += expect("streams have bars", "compute0" in document and "c-busy" in document, document)
    faults += expect("curves are drawn", document.count("<path") >= 4, document)
    faults += expect("the metric has a curve", ">auc<" in document, document)
    faults += expect("one step is drawn", re.search(r"step \d+: [\d.]+ ms, \d+ nodes", document), document)
    faults += expect("the plan is drawn", re.search(r"\d+ nodes on \d+ streams, policy", document), document)
    faults += expect("both drawings have a canvas", document.count("<canvas") == 2, document)
    faults += expect(f"no script throws {errors}", not errors, document)
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--braid", required=True)
    parser.add_argument("--shots", type=pathlib.Path)
    arguments = parser.parse_args()
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if not browser:
        print("skipped: no Chromium (apt-get install chromium)")
        return 77
    os.environ.pop("BRAID_TOKEN", None)
    faults = look_at_simulated(browser, arguments.shots)
    faults += look_at_job(browser, arguments.braid, arguments.shots)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
