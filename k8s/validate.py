#!/usr/bin/env python3
"""Renders every overlay with `kubectl kustomize` and checks what comes out, without a cluster.

Built-in kinds: the schemas of the Python package kubernetes-validate, strict. Custom kinds: their CRDs, from
--crds, turned into strict JSON Schema. Beyond the schemas: rules.py. The job files: protoc against proto/job.proto.
Before that it plants mistakes into copies of the rendered objects and fails unless every one is refused; it also fails
when an overlay renders nothing, or not the kinds that it is for.
"""

import argparse
import copy
import pathlib
import shutil
import subprocess
import sys

import jsonschema
import kubernetes_validate
import yaml

import chart
import planted_mistakes
import rules

ROOT = pathlib.Path(__file__).resolve().parent.parent
OVERLAYS = ROOT / "k8s" / "overlays"
SHARED = {"ConfigMap", "PersistentVolumeClaim", "PodMonitor", "NetworkPolicy"}
EXPECTED_KINDS = {
    "tfjob": SHARED | {"TFJob", "PodDisruptionBudget"},
    "mpijob": SHARED | {"MPIJob"},
    "plain": SHARED | {"Job", "Service", "PodDisruptionBudget"},
    "tfjob-gpu": SHARED | {"TFJob", "PodDisruptionBudget"},
    "mpijob-gpu": SHARED | {"MPIJob"},
    "plain-gpu": SHARED | {"Job", "Service", "PodDisruptionBudget"},
    "jobset": SHARED | {"JobSet", "PodDisruptionBudget"},
}
CUSTOM_GROUPS = {"kubeflow.org", "monitoring.coreos.com", "jobset.x-k8s.io"}
KUBERNETES_VERSIONS = ["1.31", kubernetes_validate.latest_version()]


def render(overlay):
    done = subprocess.run(["kubectl", "kustomize", str(overlay)], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        sys.exit(f"{overlay.name}: kubectl kustomize failed: {done.stderr.strip()}")
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def strict_schema(node):
    """An openAPIV3Schema as strict JSON Schema: no unknown fields, x-kubernetes-* and nullable resolved."""
    if isinstance(node, list):
        return [strict_schema(child) for child in node]
    if not isinstance(node, dict):
        return node
    out = {key: strict_schema(value) for key, value in node.items() if not key.startswith("x-kubernetes-")}
    if node.get("x-kubernetes-int-or-string"):
        out.pop("type", None)
        out["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if out.pop("nullable", False) and "type" in out:
        out["type"] = [out["type"], "null"]
    closed = "properties" in node and "additionalProperties" not in node
    if closed and not node.get("x-kubernetes-preserve-unknown-fields"):
        out["additionalProperties"] = False
    return out


def load_crds(folder):
    """(apiVersion, kind) -> schema."""
    schemas = {}
    for file in sorted(folder.glob("*.yaml")):
        for crd in filter(None, yaml.safe_load_all(file.read_text())):
            spec = crd["spec"]
            for version in spec["versions"]:
                schema = strict_schema(version["schema"]["openAPIV3Schema"])
                # The API server fills in and checks what is common to all kinds itself.
                schema["properties"].update(
                    {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                    }
                )
                schemas[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return schemas


def schema_errors(thing, crds):
    """Messages of what the schema of the object's kind refuses."""
    where = rules.name_of(thing)
    key = thing["apiVersion"], thing["kind"]
    if key in crds:
        for error in jsonschema.Draft202012Validator(crds[key]).iter_errors(thing):
            yield f"{where}: {error.json_path}: {error.message[:200]}"
    elif not crds and key[0].split("/")[0] in CUSTOM_GROUPS:
        return  # said once, in main
    else:
        for version in KUBERNETES_VERSIONS:
            try:
                kubernetes_validate.validate(thing, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                yield f"{where}: {'.'.join(map(str, error.path))}: {error.message[:200]} (Kubernetes {version})"
            except kubernetes_validate.SchemaNotFoundError as error:
                yield f"{where}: {error.message}"


def all_errors(objects, crds):
    for thing in objects:
        yield from schema_errors(thing, crds)
    # An object that its schema refuses may lack what the rules look at.
    for rule in rules.ALL:
        try:
            yield from rule(objects)
        except (KeyError, TypeError, IndexError) as error:
            yield f"{rule.__name__}: cannot be checked: {error!r}"


def job_file_errors(objects):
    protoc = shutil.which("protoc")
    if protoc is None:
        print("note: no protoc, the job files are not checked")
        return
    for thing in (o for o in objects if o["kind"] == "ConfigMap"):
        for name, text in thing["data"].items():
            command = [protoc, "-I", str(ROOT), "--encode=braid.proto.Job", "proto/job.proto"]
            done = subprocess.run(command, input=text.encode(), capture_output=True, cwd=ROOT, timeout=60)
            if done.returncode != 0:
                yield f"{rules.name_of(thing)}: {name}: {done.stderr.decode().strip()}"


def self_test(rendered, crds):
    """Plants each mistake into a copy; returns how many were refused. Ends the program at one that is not."""
    mistakes = planted_mistakes.FOR_ALL + (planted_mistakes.FOR_CRDS if crds else [])
    for overlay, what, plant in mistakes:
        objects = copy.deepcopy(rendered[overlay])
        plant(objects)
        if not list(all_errors(objects, crds)):
            sys.exit(f"self-test: {overlay}: {what} is accepted")
    return len(mistakes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--crds",
        type=pathlib.Path,
        default=ROOT.parent / "shared" / "data" / "crds",
        help="folder with the CRDs of TFJob, MPIJob, JobSet and PodMonitor (default: %(default)s)",
    )
    crds = load_crds(parser.parse_args().crds)
    if not crds:
        print("note: no CRDs there, custom kinds are checked by rules only")
    rendered = {path.name: render(path) for path in sorted(OVERLAYS.iterdir()) if path.is_dir()}
    errors = []
    for overlay in EXPECTED_KINDS.keys() | rendered.keys():
        kinds = {thing["kind"] for thing in rendered.get(overlay, [])}
        if kinds != EXPECTED_KINDS.get(overlay):
            errors.append(f"{overlay}: renders {sorted(kinds)}, expected {sorted(EXPECTED_KINDS.get(overlay, []))}")
    if not errors:
        for overlay, objects in rendered.items():
            errors += [f"{overlay}: {message}" for message in (*all_errors(objects, crds), *job_file_errors(objects))]
    charts = chart.render_all()
    for case, objects in charts.items():
        errors += [f"{case}: {message}" for message in (*all_errors(objects, crds), *job_file_errors(objects))]
    errors += chart.differences(charts, rendered) + chart.accepted_mistakes() if charts else []
    if errors:
        sys.exit("\n".join(errors))
    planted = self_test(rendered, crds)
    count = sum(map(len, rendered.values()))
    print(f"chart: {len(charts)} sets of values are valid, {len(chart.SAME)} of them are what an overlay says")
    print(f"manifests: {count} objects of {len(rendered)} overlays are valid; {planted} planted mistakes were refused")


if __name__ == "__main__":
    main()
