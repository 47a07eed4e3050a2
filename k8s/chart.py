"""The Helm chart, rendered by Helm's own engine (the package helm-python-sdk), and compared with the overlays.

Without that package the chart is not checked, and a note says so.
"""

import copy
import json
import pathlib

import yaml

import rules

CHART = pathlib.Path(__file__).resolve().parent / "chart"

# Values for which the chart says what an overlay says: (case, values, overlay).
SAME = [
    ("chart plain", {"kind": "plain"}, "plain"),
    ("chart plain-gpu", {"kind": "plain", "gpus": 1}, "plain-gpu"),
    ("chart tfjob", {"kind": "tfjob", "workers": 3}, "tfjob"),
    ("chart tfjob-gpu", {"kind": "tfjob", "workers": 3, "gpus": 1}, "tfjob-gpu"),
    ("chart mpijob", {"kind": "mpijob"}, "mpijob"),
    ("chart mpijob-gpu", {"kind": "mpijob", "gpus": 1}, "mpijob-gpu"),
    ("chart jobset", {"kind": "jobset"}, "jobset"),
]
MORE = [
    ("chart tfjob in Kueue", {"kind": "tfjob", "queue": {"kueue": "users"}}),
    ("chart mpijob in Volcano", {"kind": "mpijob", "workers": 5, "queue": {"volcano": "training"}}),
    ("chart jobset in Kueue", {"kind": "jobset", "servers": 3, "workers": 8, "queue": {"kueue": "users"}}),
    ("chart plain in Volcano", {"kind": "plain", "servers": 2, "queue": {"volcano": "training"}}),
    (
        "chart with volumes",
        {
            "kind": "jobset",
            "checkpoints": {"claim": "shared"},
            "data": {"path": "/data", "volume": {"persistentVolumeClaim": {"claimName": "rows"}}},
            "nodeSelector": {"pool": "cpu"},
            "tolerations": [{"key": "batch", "operator": "Exists"}],
            "labels": {"team": "ranking"},
        },
    ),
    (
        "chart that reads a store",
        {"kind": "tfjob", "envFrom": [{"secretRef": {"name": "bucket"}}], "serviceAccount": "readers"},
    ),
    (
        "chart mpijob that reads a store",
        {
            "kind": "mpijob",
            "envFrom": [{"secretRef": {"name": "bucket"}}],
            "passOn": ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
            "serviceAccount": "readers",
        },
    ),
    ("chart plain on shared cards", {"kind": "plain", "gpus": 1, "mps": {"pipe": "/tmp/nvidia-mps"}}),
    ("chart mpijob on shared cards", {"kind": "mpijob", "gpus": 1, "mps": {"pipe": "/run/nvidia/mps"}}),
]
# Values that are refused, and what the refusal says.
REFUSED = [
    ("an unknown kind", {"kind": "pods"}, "kind"),
    ("a misspelt value", {"worker": 3}, "worker"),
    ("a plain job in Kueue", {"kind": "plain", "queue": {"kueue": "users"}}, "jobset"),
    ("data ports that the job does not keep to", {"dataPorts": "5000-5010"}, "data_ports"),
    ("no time for a checkpoint", {"graceSeconds": 10}, "graceSeconds"),
    ("a misspelt source of variables", {"envFrom": [{"secretref": {"name": "bucket"}}]}, "secretref"),
    ("variables for an mpirun that there is not", {"kind": "tfjob", "passOn": ["AWS_REGION"]}, "mpijob"),
    ("MPS without a card", {"mps": {"pipe": "/tmp/nvidia-mps"}}, "gpus"),
    ("a token without a Secret", {"token": {"secret": ""}}, "secret"),
]
# What a release adds to names and labels of its own.
OF_A_RELEASE = {"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/resource-policy"}


def engine():
    try:
        import helm_python
    except ImportError:
        print("note: no helm-python-sdk, the chart is not checked")
        return None
    return helm_python


def render(values, name="braid"):
    """Objects of the chart, as overlays have them."""
    texts = engine().Chart.load(CHART).render(values=values, name=name)
    objects = [o for text in texts.values() for o in yaml.safe_load_all(text) if o]
    claim = values.get("checkpoints", {}).get("claim")
    data = values.get("data", {}).get("volume", {}).get("persistentVolumeClaim", {}).get("claimName")
    # Claims that the cluster has.
    for existing in filter(None, (claim, data)):
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": existing},
                "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
            }
        )
    return objects


def render_all():
    """case -> objects; empty without the engine."""
    helm = engine()
    if helm is None:
        return {}
    report = helm.lint(CHART)
    if report["errors"] or any(m["severity"] > 1 for m in report["messages"]):
        raise SystemExit(f"helm lint: {report}")
    cases = {case: render(values) for case, values, _ in SAME} | {case: render(values) for case, values in MORE}
    # Another release's name is in every name, so that two jobs never meet.
    cases["chart, another release"] = render({"kind": "plain"}, "ranking-7")
    return cases


def without_release(node):
    """The object without what a release adds, and TF_CONFIG as JSON."""
    if isinstance(node, list):
        return [without_release(child) for child in node]
    if not isinstance(node, dict):
        return node
    out = {k: without_release(v) for k, v in node.items() if k not in OF_A_RELEASE}
    if out.get("name") == "TF_CONFIG":
        out["value"] = json.loads(out["value"])
    for empty in ("labels", "annotations"):
        if out.get(empty) == {}:
            del out[empty]
    return out


def task_containers(objects):
    """(name of the task's kind, pod, container) of every pod."""
    for thing in objects:
        for where, template in rules.pod_templates(thing):
            component = template["metadata"]["labels"]["app.kubernetes.io/component"]
            for container in template["spec"]["containers"]:
                yield component, template["spec"], container


def missing_settings(cases):
    """Whether what was asked for is in the pods that it is for: a schema and the rules do not miss it."""
    found = []
    for case in ("chart that reads a store", "chart mpijob that reads a store"):
        for component, pod, container in task_containers(cases[case]):
            reads = container.get("command") != ["/usr/sbin/sshd"]
            if pod.get("serviceAccountName") != "readers":
                found.append(f"{case}: {component} has no service account")
            if container.get("envFrom") != ([{"secretRef": {"name": "bucket"}}] if reads else None):
                found.append(f"{case}: {component} has envFrom {container.get('envFrom')}")
            if component == "launcher" and "-x AWS_SECRET_ACCESS_KEY" not in " ".join(container["args"]):
                found.append(f"{case}: mpirun does not pass the credentials on")
    for case in ("chart plain on shared cards", "chart mpijob on shared cards"):
        for component, pod, _ in task_containers(cases[case]):
            if pod.get("hostIPC", False) != (component == "worker"):
                found.append(f"{case}: hostIPC of {component} is {pod.get('hostIPC')}")
    return found


def normal(objects):
    things = {}
    for thing in copy.deepcopy(objects):
        if thing["kind"] == "ConfigMap":
            thing["metadata"].pop("labels", None)
            thing["data"] = {name: text.strip() for name, text in thing["data"].items()}
        things[thing["kind"], thing["metadata"]["name"]] = without_release(thing)
    return things


def first_difference(one, other, path=""):
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys(), key=str):
            if found := first_difference(one.get(key), other.get(key), f"{path}.{key}"):
                return found
        return None
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, (a, b) in enumerate(zip(one, other)):
            if found := first_difference(a, b, f"{path}[{i}]"):
                return found
        return None
    return None if one == other else f"{path}: {str(one)[:80]!r}, the overlay has {str(other)[:80]!r}"


def differences(cases, overlays):
    found = []
    for case, _, overlay in SAME:
        if difference := first_difference(normal(cases[case]), normal(overlays[overlay])):
            found.append(f"{case}: {difference}")
    for thing in cases["chart, another release"]:
        if not thing["metadata"]["name"].startswith("ranking-7"):
            found.append(f"chart: {thing['kind']}/{thing['metadata']['name']} would be another job's, too")
    return found + missing_settings(cases)


def accepted_mistakes():
    found = []
    for what, values, said in REFUSED:
        try:
            render(values)
        except Exception as error:  # the engine's several kinds
            if said in str(error):
                continue
            found.append(f"chart: {what}: refused as '{error}', which does not say {said}")
        else:
            found.append(f"chart: {what} is accepted")
    return found
