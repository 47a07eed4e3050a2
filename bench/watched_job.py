#!/usr/bin/env python3
"""What it costs a job on the CPU to be watched: the processor time of an example, user and system, of a job whose
/job.json is asked for each second, as `braid top` and the page do, over that of the same job that nobody asks.

watched_job.py --braid BINARY [--pairs 7] [--steps 20000] [--every 1]. Runs take turns; the figures are medians of the
pairs: the quotient, and what one answer takes, which --every 0.05 tells better than one a second. Processor time is what
a process gets, so other work on the machine disturbs it less than rates."""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
JOB = ROOT / "examples" / "jobs" / "wide_deep_generated.pbtxt"


def ask(log, every, stop, answers):
    """Every so many seconds, once the process has said where it listens."""
    address = None
    while not stop.wait(every if address else 0.05):
        if not address:
            found = re.search(r"http://(127\.0\.0\.1:\d+)", pathlib.Path(log).read_text())
            address = found and found.group(1)
            continue
        try:
            json.load(urllib.request.urlopen(f"http://{address}/job.json", timeout=5))
            answers.append(time.time())
        except OSError:
            pass


def run(braid, steps, watched, every):
    """(seconds of processor time, seconds, answers)."""
    words = [braid, "train", "--job", str(JOB)]
    for each in (f"steps={steps}", "epochs=0", "runtime.device=CPU", "runtime.intra_op_threads=1",
                 "evaluation.enabled=false", "checkpoint.directory="):
        words += ["--set", each]
    with tempfile.NamedTemporaryFile("w+") as log:
        begin = time.time()
        process = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, "BRAID_HTTP": "127.0.0.1:0"})
        stop, answers = threading.Event(), []
        asking = threading.Thread(target=ask, args=(log.name, every, stop, answers)) if watched else None
        if asking:
            asking.start()
        _, status, use = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        stop.set()
        if asking:
            asking.join()
        if process.returncode != 0 or (watched and not answers):
            raise SystemExit(f"exit code {process.returncode}, {len(answers)} answers\n{pathlib.Path(log.name).read_text()}")
    return use.ru_utime + use.ru_stime, time.time() - begin, len(answers)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--braid", required=True)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--every", type=float, default=1)
    options = parser.parse_args()
    quotients, milliseconds = [], []
    for pair in range(options.pairs):
        alone = watched = asked = 0
        for is_watched in ((False, True) if pair % 2 == 0 else (True, False)):
            used, seconds, answers = run(options.braid, options.steps, is_watched, options.every)
            if is_watched:
                watched, asked = used, answers
            else:
                alone = used
            print(f"{'watched' if is_watched else 'alone':8} {used:8.3f} s of a processor in {seconds:6.1f} s, {answers} answers",
                  flush=True)
        quotients.append(watched / alone)
        milliseconds.append(1000 * (watched - alone) / asked)
    print(f"an answer: median {statistics.median(milliseconds):.2f} ms of {sorted(round(m, 2) for m in milliseconds)}")
    print(f"watched / alone: median {statistics.median(quotients):.4f} of {sorted(round(q, 4) for q in quotients)}")


if __name__ == "__main__":
    main()
