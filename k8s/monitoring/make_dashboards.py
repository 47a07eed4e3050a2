#!/usr/bin/env python3
"""Makes the Grafana dashboards of this folder: job, workers, servers and cards. `make_dashboards.py` writes them,
`make_dashboards.py --check` compares, and checks that every metric that dashboards and alerts ask for is in
docs/user/metrics.md; with promtool it checks the alert rules, too. Import the files in Grafana, or give them to its
sidecar as a ConfigMap with the label grafana_dashboard."""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "dashboards"
METRICS = HERE.parents[1] / "docs" / "user" / "metrics.md"
JOB = 'braid_job_info{job="$job"}'
# Labels of the process, from the one metric that has them. Prometheus' own label `job` is its scrape job, so the
# job's name may come as exported_job: honorLabels in the PodMonitor keeps it.
BY = f"on (instance) group_left (role, index) {JOB}"


def of_job(expression):
    return f"({expression}) * {BY}"


# title: [(panel, unit, [(expression, legend)])]
DASHBOARDS = {
    "job": [
        ("Progress", "percentunit", [(of_job("braid_step / braid_target_steps"), "worker {{index}}")]),
        ("Loss", "short", [(of_job("braid_loss"), "worker {{index}}")]),
        ("Quality on the test data", "short", [(of_job("braid_evaluation"), "{{metric}} {{task}}")]),
        ("Examples a second", "short", [(f"sum({of_job('rate(braid_examples_total[1m])')})", "all workers")]),
        ("Learning rate", "short", [(of_job("braid_learning_rate"), "worker {{index}}")]),
        (
            "Age of the last checkpoint",
            "s",
            [(f"time() - {of_job('braid_checkpoint_timestamp_seconds')}", "worker {{index}}")],
        ),
        (
            "Time of a checkpoint, p95",
            "s",
            [(f"histogram_quantile(0.95, sum by (le) ({of_job('rate(braid_checkpoint_seconds_bucket[10m])')}))", "p95")],
        ),
        ("Processes", "short", [(f"count by (role) ({JOB})", "{{role}}")]),
    ],
    "workers": [
        (
            "Step time, median and p95",
            "s",
            [
                (
                    f"histogram_quantile({q}, sum by (le, index) ({of_job('rate(braid_step_seconds_bucket[1m])')}))",
                    f"worker {{{{index}}}} p{int(100 * q)}",
                )
                for q in (0.5, 0.95)
            ],
        ),
        (
            "Busy streams",
            "percentunit",
            [(of_job("rate(braid_stream_busy_seconds_total[1m])"), "worker {{index}} {{stream}}")],
        ),
        (
            "What compute streams wait for",
            "percentunit",
            [(of_job('rate(braid_stream_wait_seconds_total{stream=~"compute.*"}[1m])'), "{{index}} {{stream}} {{cause}}")],
        ),
        ("Overlap of compute streams", "short", [(of_job("braid_host_overlap_factor"), "worker {{index}}")]),
        (
            "Takes that waited for a batch",
            "percentunit",
            [
                (
                    of_job("rate(braid_stage_late_takes_total[1m]) / rate(braid_stage_batches_total[1m])"),
                    "worker {{index}} {{stage}}",
                )
            ],
        ),
        (
            "Network of the data plane",
            "Bps",
            [(of_job("rate(braid_network_bytes_total[1m])"), "{{role}} {{index}} {{direction}}")],
        ),
        ("Cores", "short", [(of_job("rate(process_cpu_seconds_total[1m])"), "{{role}} {{index}}")]),
        ("Memory", "bytes", [(of_job("process_resident_memory_bytes"), "{{role}} {{index}}")]),
    ],
    "servers": [
        ("Pushes", "ops", [(of_job("rate(braid_ps_pushes_total[1m])"), "ps {{index}} {{result}}")]),
        ("Pulls", "ops", [(of_job("rate(braid_ps_pulls_total[1m])"), "ps {{index}}")]),
        ("Rows", "ops", [(of_job("rate(braid_ps_rows_total[1m])"), "ps {{index}} {{op}}")]),
        ("Bytes", "Bps", [(of_job("rate(braid_ps_bytes_total[1m])"), "ps {{index}} {{direction}}")]),
        ("Pulls that wait", "short", [(of_job("braid_ps_parked_pulls"), "ps {{index}}")]),
        (
            "Stale pushes",
            "percentunit",
            [
                (
                    f"sum by (index) ({of_job('rate(braid_ps_pushes_stale_total[1m])')}) / "
                    f"sum by (index) ({of_job('rate(braid_ps_pushes_total[1m])')})",
                    "ps {{index}}",
                )
            ],
        ),
        ("Refused requests", "ops", [(of_job("rate(braid_ps_requests_refused_total[1m])"), "ps {{index}}")]),
    ],
    "cards": [
        ("Used", "percentunit", [(of_job("braid_device_utilization_ratio"), "worker {{index}} {{device}}")]),
        ("Memory of all processes", "bytes", [(of_job("braid_device_memory_used_bytes"), "worker {{index}} {{device}}")]),
        ("Memory of this job", "bytes", [(of_job("braid_device_memory_held_bytes"), "worker {{index}} {{device}}")]),
        ("Power", "watt", [(of_job("braid_device_power_watts"), "worker {{index}} {{device}}")]),
        ("Temperature", "celsius", [(of_job("braid_device_temperature_celsius"), "worker {{index}} {{device}}")]),
        (
            "Busy streams, sampled",
            "percentunit",
            [
                (
                    of_job(
                        "rate(braid_stream_sampled_busy_seconds_total[5m]) / "
                        "rate(braid_stream_sampled_window_seconds_total[5m])"
                    ),
                    "worker {{index}} {{stream}}",
                )
            ],
        ),
        ("Overlap of streams, sampled", "short", [(of_job("braid_device_overlap_factor"), "worker {{index}} {{device}}")]),
    ],
}


def dashboard(name, panels):
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "title": f"Braid: {name}",
        "uid": f"braid-{name}",
        "schemaVersion": 39,
        "tags": ["braid"],
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["braid"], "title": "Braid", "keepTime": True, "includeVars": True}],
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus"},
                {
                    "name": "job",
                    "type": "query",
                    "datasource": source,
                    "query": {"query": "label_values(braid_job_info, job)", "refId": "job"},
                    "refresh": 2,
                },
            ]
        },
        "panels": [
            {
                "id": i + 1,
                "type": "timeseries",
                "title": title,
                "datasource": source,
                "gridPos": {"h": 8, "w": 12, "x": 12 * (i % 2), "y": 8 * (i // 2)},
                "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
                "targets": [
                    {"refId": chr(65 + t), "expr": expression, "legendFormat": legend, "datasource": source}
                    for t, (expression, legend) in enumerate(targets)
                ],
            }
            for i, (title, unit, targets) in enumerate(panels)
        ],
    }


def texts():
    return {OUT / f"{name}.json": json.dumps(dashboard(name, panels), indent=1) + "\n" for name, panels in DASHBOARDS.items()}


def unknown_metrics(text, known):
    for metric in sorted(set(re.findall(r"\b(?:braid|process)_[a-z_]+\b", text))):
        base = re.sub(r"_(bucket|sum|count)$", "", metric)
        if metric not in known and base not in known:
            yield metric


def check():
    faults = []
    known = set(re.findall(r"`((?:braid|process)_[a-z_]+)`", METRICS.read_text()))
    for path, text in texts().items():
        if not path.is_file() or path.read_text() != text:
            faults.append(f"{path.name} is not what make_dashboards.py makes: run it")
        faults += [f"{path.name}: no metric {m} in metrics.md" for m in unknown_metrics(text, known)]
    alerts = HERE / "alerts.yaml"
    faults += [f"alerts.yaml: no metric {m} in metrics.md" for m in unknown_metrics(alerts.read_text(), known)]
    if not list(unknown_metrics('braid_lost{job="x"}', known)):
        faults.append("a planted unknown metric was not found")
    promtool = shutil.which("promtool")
    if promtool:
        done = subprocess.run([promtool, "check", "rules", alerts], capture_output=True, text=True)
        if done.returncode != 0:
            faults.append(done.stdout + done.stderr)
        for panels in DASHBOARDS.values():
            for _, _, targets in panels:
                for expression, _ in targets:
                    rule = {"groups": [{"name": "g", "rules": [{"record": "a", "expr": expression.replace("$job", "j")}]}]}
                    done = subprocess.run(
                        [promtool, "check", "rules", "/dev/stdin"], input=json.dumps(rule), capture_output=True, text=True
                    )
                    if done.returncode != 0:
                        faults.append(f"{expression}: {done.stdout}{done.stderr}")
    for fault in faults:
        print(fault)
    print(f"{len(texts())} dashboards, {'promtool' if promtool else 'without promtool'}: {len(faults)} faults")
    return 1 if faults else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and change nothing")
    if parser.parse_args().check:
        return check()
    OUT.mkdir(exist_ok=True)
    for path, text in texts().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
