"""A job of many workers that never ran: a process of Braid, as its HTTP address would answer, for looks at the page and
for `braid top`. `python3 simulated_job.py --workers 64 --port 8099` serves until it is ended; every task has the same
address, whose /job.json has them all."""

import argparse
import http.server
import json
import math
import pathlib
import random
import time

PAGE = pathlib.Path(__file__).resolve().parents[3] / "watch" / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
BEGIN = time.time()


def stream(name, cause, busy, **wait):
    wait["idle"] = max(0.0, 1 - busy - sum(wait.values()))
    return {"name": name, "cause": cause, "busy": busy, "wait": wait, "node_seconds": 4e-5}


def worker(index, step):
    draw = random.Random(index * 1000 + step // 20)
    busy = 0.55 + 0.3 * draw.random()
    waits = 0.1 * draw.random()
    status = {
        "version": 1, "task": f"worker {index}", "role": "worker", "job": "simulated", "host": f"node{index // 8}",
        "state": "training", "time": time.time(), "uptime_seconds": time.time() - BEGIN, "window_seconds": 5,
        "leads": index == 0, "trains": True, "step": step, "target_steps": 20000, "steps_per_second": 80,
        "examples_per_second": 5100 + 200 * draw.random(), "step_seconds": 0.0123 + 0.001 * draw.random(),
        "loss": 0.3 + 0.4 * math.exp(-step / 4000), "learning_rate": 0.01, "metrics": {"auc": 0.78, "log_loss": 0.45},
        "metrics_step": step, "batch_rows": 64, "global_batch_rows": 64 * 64, "compute_busy": 0.8, "overlap": 1.7,
        "streams": [stream("compute0", "compute", busy, input=waits, compute=0.1),
                    stream("compute1", "compute", busy * 0.8, compute=0.15),
                    stream("comm", "comm", 0.2 + 0.3 * draw.random(), compute=0.3),
                    stream("stage0", "stage", 0.4, space=0.6)],
        "stages": [], "gpus": [], "process": {"pid": 4000 + index, "cores_used": 1.7, "cores": 4,
                                              "resident_bytes": 3 * 2**28, "memory_limit_bytes": 2**33, "threads": 14},
        "network": {"received_per_second": 4e6, "sent_per_second": 4e6}, "warnings": [], "peers": [],
    }
    if index < 2:
        status["gpus"] = [{"name": f"cuda:{index} A card", "utilization": 0.93, "memory_used_bytes": 41 * 2**30,
                           "memory_total_bytes": 80 * 2**30, "memory_held_bytes": 40 * 2**30,
                           "temperature_celsius": 64, "power_watts": 512, "power_limit_watts": 700,
                           "processes": [{"pid": 4000 + index, "name": "braid", "memory_bytes": 40 * 2**30}],
                           "sampled_seconds": 1.2, "busy": 0.91, "overlap": 1.44,
                           "input_copies": 900, "input_copy_bytes": 900 * 2**21, "input_copy_seconds": 0.0378,
                           "input_copy_hidden_seconds": 0.0371,
                           "streams": [{"name": "compute0", "busy": 0.8, "pieces": 9000},
                                       {"name": "compute1", "busy": 0.5, "pieces": 4000}]}]
    return status


def job(workers, address):
    step = int(1000 + 80 * (time.time() - BEGIN))
    peers = [{"task": f"worker {i}", "address": address, "status": worker(i, step)} for i in range(workers)]
    peers[17 % workers] = {"task": f"worker {17 % workers}", "address": "10.0.0.17:8080", "silent_seconds": 12.5,
                           "error": "no answer in time"} if workers > 20 else peers[17 % workers]
    warnings = [{"rule": "slow_input", "task": "worker 3", "text": "input-bound: 43 % of the compute streams' time waits "
                 "for batches", "advice": "try staging.num_threads: 4"}]
    return {"version": 1, "job": "simulated", "time": time.time(), "peers": peers, "warnings": warnings}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.split("?")[0]
        name = "index.html" if path == "/" else path.removeprefix("/page/")
        if (PAGE / name).is_file():
            return self.answer(TYPES[(PAGE / name).suffix], (PAGE / name).read_bytes())
        if path == "/job.json":
            return self.answer("application/json", json.dumps(job(self.server.workers, self.headers["Host"])).encode())
        if path == "/history.json":
            steps = list(range(0, 1000, 10))
            columns = {"step": steps, "time": steps, "loss": [0.3 + 0.4 * math.exp(-s / 300) for s in steps],
                       "examples_per_second": [5000 + 300 * math.sin(s / 50) for s in steps],
                       "learning_rate": [0.01] * 100, "busy": [0.8] * 100, "input": [0.05] * 100,
                       "metrics": {"auc": [[s, 0.5 + 0.28 * (1 - math.exp(-s / 300))] for s in steps[::10]]}}
            return self.answer("application/json", json.dumps(columns).encode())
        self.send_error(404)

    def answer(self, kind, body):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(workers, port):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.workers = workers
    return server


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--port", type=int, default=8099)
    arguments = parser.parse_args()
    serve(arguments.workers, arguments.port).serve_forever()
