"""What the schemas do not say: the rules of the operators' webhooks, and this project's own for its pods.

Each check takes the objects of one rendered overlay and yields messages "Kind/name: what is wrong".
"""

import json
import re

DNS_1035 = re.compile(r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")
TRAIN = ["train", "--job", "/etc/braid/job.pbtxt", "--resume"]
PROBE_PATHS = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}


def name_of(thing):
    return f"{thing['kind']}/{thing['metadata']['name']}"


def replicas_of(thing):
    """Replica type -> its spec, for the kinds that have several."""
    spec = thing.get("spec", {})
    return spec.get("tfReplicaSpecs") or spec.get("mpiReplicaSpecs") or {}


def pod_templates(thing):
    """(where, template) of every pod that the object makes."""
    for kind, replica in replicas_of(thing).items():
        yield f"{name_of(thing)} {kind}", replica["template"]
    for job in thing.get("spec", {}).get("replicatedJobs", []):
        yield f"{name_of(thing)} {job['name']}", job["template"]["spec"]["template"]
    if "template" in thing.get("spec", {}):
        yield name_of(thing), thing["spec"]["template"]


def check_jobset(objects):
    """A set ends its servers with its workers, and its pods' names are those that JobSet gives."""
    for jobset in (o for o in objects if o["kind"] == "JobSet"):
        where, spec = name_of(jobset), jobset["spec"]
        if spec.get("successPolicy", {}).get("targetReplicatedJobs") != ["worker"]:
            yield f"{where}: the workers decide when the set is done, or its servers keep it"
        if not spec.get("network", {}).get("publishNotReadyAddresses"):
            yield f"{where}: must publish pods that are not ready"
        counts = {job["name"]: job["template"]["spec"]["completions"] for job in spec["replicatedJobs"]}
        domain = spec.get("network", {}).get("subdomain", jobset["metadata"]["name"])
        for place, template in pod_templates(jobset):
            text = {e["name"]: e.get("value") for e in template["spec"]["containers"][0]["env"]}.get("TF_CONFIG")
            config = json.loads(text)
            for job, addresses in config["cluster"].items():
                names = [f"{jobset['metadata']['name']}-{job}-0-{i}.{domain}:2222" for i in range(counts.get(job, 0))]
                if addresses != names:
                    yield f"{place}: TF_CONFIG lists {addresses} as {job}, the pods are {names}"


def check_gpus(objects):
    """Pods with a card have room in /dev/shm; servers have no card."""
    for thing in objects:
        for where, template in pod_templates(thing):
            cards = [c["resources"].get("limits", {}).get("nvidia.com/gpu", 0) for c in template["spec"]["containers"]]
            if not any(cards):
                continue
            shm = [v["emptyDir"].get("sizeLimit") for v in template["spec"].get("volumes", []) if v["name"] == "shm"]
            if not template["spec"].get("hostIPC") and (not shm or not str(shm[0]).endswith("Gi")):
                yield f"{where}: /dev/shm is too small for NCCL"
            if template["metadata"]["labels"].get("app.kubernetes.io/component") == "ps":
                yield f"{where}: servers compute on the CPU"


def check_host(objects):
    """Pods share the node's IPC and a folder of it only to reach an MPS daemon, for a card that they have."""
    for thing in objects:
        for where, template in pod_templates(thing):
            spec = template["spec"]
            if spec.get("hostNetwork") or spec.get("hostPID"):
                yield f"{where}: pods have a network and processes of their own"
            folders = {v["name"] for v in spec.get("volumes", []) if "hostPath" in v}
            cards = [c["resources"].get("limits", {}).get("nvidia.com/gpu", 0) for c in spec["containers"]]
            mounts = [m for c in spec["containers"] for m in c.get("volumeMounts", []) if m["name"] in folders]
            shares = [m["mountPath"] for m in mounts] == ["/tmp/nvidia-mps"] and any(cards)
            if (spec.get("hostIPC", False) or bool(folders)) and not (spec.get("hostIPC") and shares):
                yield f"{where}: hostIPC and the node's folders are for MPS, at /tmp/nvidia-mps of pods with a card"
            own = [m for c in spec["containers"] for m in c.get("volumeMounts", []) if m["mountPath"] == "/dev/shm"]
            if spec.get("hostIPC") and own:
                yield f"{where}: its own /dev/shm hides the one through which the MPS daemon speaks"


def check_tfjob(objects):
    """Rules of the training operator's webhook and defaults, v1.9."""
    for job in (o for o in objects if o["kind"] == "TFJob"):
        where, replicas = name_of(job), replicas_of(job)
        if not DNS_1035.match(job["metadata"]["name"]):
            yield f"{where}: the name is no DNS-1035 label"
        for kind, replica in replicas.items():
            if kind not in {"PS", "Worker", "Chief", "Master", "Evaluator"}:
                yield f"{where}: no replica type is called {kind}"
            if replica.get("restartPolicy", "Never") not in {"Never", "Always", "OnFailure", "ExitCode"}:
                yield f"{where} {kind}: no restartPolicy is called {replica['restartPolicy']}"
            containers = replica["template"]["spec"]["containers"]
            named = [c for c in containers if c["name"] == "tensorflow"]
            if len(named) != 1:
                yield f"{where} {kind}: one container must be called tensorflow"
            elif "tfjob-port" not in [p.get("name") for p in named[0].get("ports", [])]:
                yield f"{where} {kind}: no port is called tfjob-port, so the operator assumes 2222"
            if kind in {"Chief", "Master", "Evaluator"} and replica.get("replicas", 1) != 1:
                yield f"{where} {kind}: there is at most one"
        if {"Chief", "Master"} <= replicas.keys():
            yield f"{where}: Chief and Master exclude each other"
        yield from check_clean_up(job)


def check_mpijob(objects):
    """Validation of the MPI operator, v0.8."""
    for job in (o for o in objects if o["kind"] == "MPIJob"):
        where, replicas = name_of(job), replicas_of(job)
        if replicas.keys() != {"Launcher", "Worker"}:
            yield f"{where}: the replica types are Launcher and Worker, got {sorted(replicas)}"
            continue
        if replicas["Launcher"].get("replicas", 1) != 1:
            yield f"{where}: exactly one launcher"
        workers = replicas["Worker"].get("replicas", 0)
        if workers < 1:
            yield f"{where}: at least one worker"
        if not DNS_1035.match(f"{job['metadata']['name']}-worker-{max(workers - 1, 0)}"):
            yield f"{where}: the last worker's name is no DNS-1035 label"
        for kind, replica in replicas.items():
            if replica.get("restartPolicy", "Never") not in {"Never", "OnFailure"}:
                yield f"{where} {kind}: restartPolicy must be Never or OnFailure"
        if job["spec"].get("mpiImplementation", "OpenMPI") not in {"OpenMPI", "Intel", "MPICH"}:
            yield f"{where}: no mpiImplementation is called {job['spec']['mpiImplementation']}"
        for container in replicas["Worker"]["template"]["spec"]["containers"]:
            if "TERM" not in str(container.get("lifecycle", {}).get("preStop", {}).get("exec")):
                yield f"{where} Worker: nothing tells the ranks of a pod that goes to make a checkpoint (preStop)"
        arguments = replicas["Launcher"]["template"]["spec"]["containers"][0].get("args", [])
        slots = workers * job["spec"].get("slotsPerWorker", 1)
        if "-np" not in arguments or arguments[arguments.index("-np") + 1] != str(slots):
            yield f"{where}: mpirun must start -np {slots}, one process a slot"
        yield from check_clean_up(job)


def check_clean_up(job):
    if job["spec"].get("runPolicy", {}).get("cleanPodPolicy") not in {"Running", "All"}:
        yield f"{name_of(job)}: cleanPodPolicy must be Running or All, or servers and sshd outlive the job"


def check_pods(objects):
    """What every pod of this project keeps to."""
    config_maps = {o["metadata"]["name"] for o in objects if o["kind"] == "ConfigMap"}
    claims = {o["metadata"]["name"] for o in objects if o["kind"] == "PersistentVolumeClaim"}
    for thing in objects:
        for where, template in pod_templates(thing):
            spec = template["spec"]
            security = spec.get("securityContext", {})
            if not security.get("runAsNonRoot") or "seccompProfile" not in security:
                yield f"{where}: pods run as a user, with a seccomp profile"
            if spec.get("terminationGracePeriodSeconds", 30) <= 30:
                yield f"{where}: terminationGracePeriodSeconds leaves no time for a checkpoint"
            volumes = {v["name"]: v for v in spec.get("volumes", [])}
            for volume in volumes.values():
                if "configMap" in volume and volume["configMap"]["name"] not in config_maps:
                    yield f"{where}: no ConfigMap is called {volume['configMap']['name']}"
                if "persistentVolumeClaim" in volume and volume["persistentVolumeClaim"]["claimName"] not in claims:
                    yield f"{where}: no claim is called {volume['persistentVolumeClaim']['claimName']}"
            for container in spec["containers"]:
                yield from check_container(f"{where} {container['name']}", container, volumes)


def check_container(where, container, volumes):
    security = container.get("securityContext", {})
    if security.get("allowPrivilegeEscalation") is not False or security.get("capabilities", {}).get("drop") != ["ALL"]:
        yield f"{where}: containers drop all capabilities and cannot gain any"
    for mount in container.get("volumeMounts", []):
        if mount["name"] not in volumes:
            yield f"{where}: no volume is called {mount['name']}"
    ports = [p.get("name") for p in container.get("ports", [])]
    for probe in PROBE_PATHS:
        action = container.get(probe, {}).get("httpGet") or container.get(probe, {}).get("tcpSocket")
        if action and isinstance(action["port"], str) and action["port"] not in ports:
            yield f"{where}: {probe} asks port {action['port']}, which there is not"
    if "command" in container:  # mpirun and sshd; the binary itself is the image's entry point
        if container["command"] == ["mpirun"] and container["args"][-5:] != ["braid", *TRAIN]:
            yield f"{where}: every rank runs braid {' '.join(TRAIN)}"
        return
    if container.get("args") != TRAIN:
        yield f"{where}: every pod runs braid {' '.join(TRAIN)}"
    for probe, path in PROBE_PATHS.items():
        if container.get(probe, {}).get("httpGet", {}).get("path") != path:
            yield f"{where}: {probe} must ask {path}"
    token = [e.get("valueFrom", {}) for e in container.get("env", []) if e["name"] == "BRAID_TOKEN"]
    if len(token) != 1 or "secretKeyRef" not in token[0]:
        yield f"{where}: BRAID_TOKEN must come from a Secret, or whoever reaches the pod can take the job over"
    environment = {e["name"]: e.get("value") for e in container.get("env", [])}
    if not str(environment.get("BRAID_HTTP", "")).endswith(":8080"):
        yield f"{where}: BRAID_HTTP is not the port of the probes"


def pods_of(owner, template):
    """How many pods a Job, StatefulSet or a JobSet's Job makes of the template."""
    for job in owner["spec"].get("replicatedJobs", []):
        if job["template"]["spec"]["template"] is template:
            return job.get("replicas", 1) * job["template"]["spec"].get("completions", 1)
    return owner["spec"].get("replicas", owner["spec"].get("completions", 1))


def check_network_policy(objects):
    """Exactly the ports that the job's file fixes, and nobody else's pods."""
    texts = [text for o in objects if o["kind"] == "ConfigMap" for text in o["data"].values()]
    mpi = any(o["kind"] == "MPIJob" for o in objects)
    for policy in (o for o in objects if o["kind"] == "NetworkPolicy"):
        where, spec = name_of(policy), policy["spec"]
        labels = spec["podSelector"]["matchLabels"].items()
        for _, template in (each for o in objects for each in pod_templates(o)):
            if not labels <= template["metadata"]["labels"].items():
                yield f"{where}: does not cover all pods of the job"
        inside, outside = spec["ingress"]
        peers = [p.get("podSelector", {}).get("matchLabels", {}) for p in inside.get("from", [])]
        if peers != [spec["podSelector"]["matchLabels"]]:
            yield f"{where}: control and data are for the job's own pods"
        if [p["port"] for p in outside["ports"]] != ["http"]:
            yield f"{where}: others reach more than metrics"
        if mpi:
            if "ports" in inside:
                yield f"{where}: MPI and NCCL pick ports by themselves"
            continue
        ports = [(p["port"], p.get("endPort", p["port"])) for p in inside.get("ports", [])]
        fixed = re.search(r'data_ports: "(\d+)(?:-(\d+))?"', "".join(texts))
        wanted = fixed and (int(fixed[1]), int(fixed[2] or fixed[1]))
        if ports != [(2222, 2222), wanted]:
            yield f"{where}: opens {ports}, but the pods listen on 2222 and on data_ports {wanted}"


def check_labels(objects):
    """Pods are found by the PodMonitor, and each budget covers just its pods."""
    templates = [(w, t, o) for o in objects for w, t in pod_templates(o)]
    for where, template, _ in templates:
        if template["metadata"]["labels"].get("app.kubernetes.io/name") != "braid":
            yield f"{where}: the PodMonitor does not select these pods"
    for budget in (o for o in objects if o["kind"] == "PodDisruptionBudget"):
        wanted = budget["spec"]["selector"]["matchLabels"].items()
        covered = 0
        for _, template, owner in templates:
            if wanted <= template["metadata"]["labels"].items():
                kind = next((k for k, r in replicas_of(owner).items() if r["template"] is template), None)
                covered += replicas_of(owner)[kind].get("replicas", 1) if kind else pods_of(owner, template)
        if not isinstance(budget["spec"].get("minAvailable"), int) or "maxUnavailable" in budget["spec"]:
            yield f"{name_of(budget)}: pods of an operator allow minAvailable as a number only"
        elif budget["spec"]["minAvailable"] != covered:
            yield f"{name_of(budget)}: minAvailable {budget['spec']['minAvailable']}, but it covers {covered} pods"


def check_tf_config(objects):
    """A TF_CONFIG written by hand names pods that there are, with ports that they open."""
    services = {o["metadata"]["name"]: o for o in objects if o["kind"] == "Service"}
    owners = {o["metadata"]["name"]: o for o in objects if o["kind"] in {"StatefulSet", "Job"}}
    for thing in owners.values():
        for where, template in pod_templates(thing):
            text = {e["name"]: e.get("value") for e in template["spec"]["containers"][0]["env"]}.get("TF_CONFIG")
            try:
                config = json.loads(text)
            except (TypeError, ValueError) as error:
                yield f"{where}: TF_CONFIG is no JSON: {error}"
                continue
            if config["task"]["index"] != "$(TASK_INDEX)" or config["task"]["type"] not in config["cluster"]:
                yield f"{where}: TF_CONFIG's task is {config['task']}"
            for job, addresses in config["cluster"].items():
                name = thing["metadata"]["name"].rsplit("-", 1)[0]
                owner = owners.get(f"{name}-{job}")
                count = owner and owner["spec"].get("replicas", owner["spec"].get("completions"))
                expected = [f"{name}-{job}-{i}.{name}-{job}:2222" for i in range(count or 0)]
                if addresses != expected:
                    yield f"{where}: TF_CONFIG lists {addresses} as {job}, the pods are {expected}"
    for service in services.values():
        if service["spec"].get("clusterIP") != "None" or not service["spec"].get("publishNotReadyAddresses"):
            yield f"{name_of(service)}: must be headless and publish pods that are not ready"
        labels = service["spec"]["selector"].items()
        if not any(labels <= t["metadata"]["labels"].items() for o in objects for _, t in pod_templates(o)):
            yield f"{name_of(service)}: selects no pod"


ALL = [
    check_tfjob,
    check_mpijob,
    check_jobset,
    check_gpus,
    check_host,
    check_pods,
    check_network_policy,
    check_labels,
    check_tf_config,
]
