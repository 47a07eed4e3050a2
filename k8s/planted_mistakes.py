"""Mistakes that validate.py plants into copies of the rendered objects, to prove that it refuses them."""

import copy


def find(objects, kind, name=None):
    return next(o for o in objects if o["kind"] == kind and name in (None, o["metadata"]["name"]))


def rename(mapping, old, new):
    mapping[new] = mapping.pop(old)


def tf(objects):
    return find(objects, "TFJob")["spec"]


def servers(objects):
    return tf(objects)["tfReplicaSpecs"]["PS"]


def mpi(objects):
    return find(objects, "MPIJob")["spec"]


def mpi_worker(objects):
    return mpi(objects)["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]


def pod(objects, kind, name=None):
    return find(objects, kind, name)["spec"]["template"]["spec"]


def probe(objects, name):
    return pod(objects, "Job")["containers"][0][name]


def add_master(objects):
    replicas = tf(objects)["tfReplicaSpecs"]
    replicas["Master"] = copy.deepcopy(replicas["Chief"])


def share_with_own_memory(objects):
    """MPS by hand, but /dev/shm is still the pod's own."""
    spec = pod(objects, "Job", "braid-worker")
    spec["hostIPC"] = True
    spec["volumes"].append({"name": "mps", "hostPath": {"path": "/tmp/nvidia-mps"}})
    spec["containers"][0]["volumeMounts"].append({"name": "mps", "mountPath": "/tmp/nvidia-mps"})


# (overlay, what, how). These only the schema of a custom kind can see.
FOR_CRDS = [
    ("tfjob", "misspelt field of a TFJob", lambda o: rename(tf(o)["runPolicy"], "backoffLimit", "backofLimit")),
    ("tfjob", "misspelt field of a PodMonitor", lambda o: rename(find(o, "PodMonitor")["spec"], "selector", "selectr")),
    ("tfjob", "a number as text", lambda o: tf(o)["runPolicy"].update(backoffLimit="six")),
    ("mpijob", "misspelt field of an MPIJob", lambda o: rename(mpi(o), "slotsPerWorker", "slotPerWorker")),
]

FOR_ALL = [
    ("jobset", "a set that its servers keep", lambda o: find(o, "JobSet")["spec"].pop("successPolicy")),
    (
        "jobset",
        "a worker that the set's TF_CONFIG does not know",
        lambda o: find(o, "JobSet")["spec"]["replicatedJobs"][1]["template"]["spec"].update(completions=3),
    ),
    (
        "plain-gpu",
        "little shared memory beside a card",
        lambda o: pod(o, "Job", "braid-worker")["volumes"][2]["emptyDir"].update(sizeLimit="64Mi"),
    ),
    ("plain-gpu", "the node's IPC without MPS", lambda o: pod(o, "Job", "braid-worker").update(hostIPC=True)),
    ("plain-gpu", "MPS without the node's /dev/shm", share_with_own_memory),
    (
        "plain-gpu",
        "a folder of the node",
        lambda o: pod(o, "Job", "braid-worker")["volumes"].append({"name": "all", "hostPath": {"path": "/"}}),
    ),
    (
        "plain",
        "data ports that no policy opens",
        lambda o: find(o, "NetworkPolicy")["spec"]["ingress"][0]["ports"][1].update(endPort=2230),
    ),
    ("plain", "a policy for other pods", lambda o: find(o, "NetworkPolicy")["spec"]["ingress"][0].pop("from")),
    (
        "jobset",
        "more servers of a set than the budget covers",
        lambda o: find(o, "PodDisruptionBudget")["spec"].update(minAvailable=2),
    ),
    ("tfjob", "unknown replica type", lambda o: rename(tf(o)["tfReplicaSpecs"], "PS", "Server")),
    ("tfjob", "unknown restartPolicy", lambda o: servers(o).update(restartPolicy="Sometimes")),
    ("tfjob", "wrong container name", lambda o: servers(o)["template"]["spec"]["containers"][0].update(name="braid")),
    ("tfjob", "chief beside master", add_master),
    ("tfjob", "no cleanPodPolicy", lambda o: tf(o)["runPolicy"].pop("cleanPodPolicy")),
    ("tfjob", "a percentage in a budget", lambda o: find(o, "PodDisruptionBudget")["spec"].update(minAvailable="50%")),
    ("tfjob", "more servers than the budget covers", lambda o: servers(o).update(replicas=2)),
    ("mpijob", "ranks that are not told", lambda o: mpi_worker(o).pop("lifecycle")),
    ("mpijob", "two launchers", lambda o: mpi(o)["mpiReplicaSpecs"]["Launcher"].update(replicas=2)),
    ("mpijob", "ExitCode under MPI", lambda o: mpi(o)["mpiReplicaSpecs"]["Worker"].update(restartPolicy="ExitCode")),
    ("mpijob", "fewer processes than slots", lambda o: mpi(o).update(slotsPerWorker=2)),
    (
        "plain",
        "misspelt field of a Job",
        lambda o: rename(find(o, "Job")["spec"], "parallelism", "paralelism"),
    ),
    ("plain", "misspelt field of a probe", lambda o: rename(probe(o, "readinessProbe"), "timeoutSeconds", "timeout")),
    ("plain", "unknown kind", lambda o: find(o, "Job").update(kind="Jop")),
    ("plain", "a container as root", lambda o: pod(o, "Job")["securityContext"].pop("runAsNonRoot")),
    ("plain", "readiness that waits for peers", lambda o: probe(o, "readinessProbe")["httpGet"].update(path="/joined")),
    ("plain", "a port that there is not", lambda o: probe(o, "livenessProbe")["httpGet"].update(port="web")),
    ("plain", "a worker that TF_CONFIG does not know", lambda o: find(o, "Job")["spec"].update(completions=3)),
    ("plain", "broken TF_CONFIG", lambda o: pod(o, "Job")["containers"][0]["env"][1].update(value="{")),
    (
        "plain",
        "a Service that hides unready pods",
        lambda o: find(o, "Service")["spec"].pop("publishNotReadyAddresses"),
    ),
    ("plain", "a job without a token", lambda o: pod(o, "Job")["containers"][0]["env"].pop()),
    (
        "plain",
        "a token for all to read",
        lambda o: pod(o, "Job")["containers"][0]["env"][-1].update(value="not a secret", valueFrom={}),
    ),
    ("plain", "another command in one pod", lambda o: pod(o, "Job")["containers"][0].update(args=["serve"])),
    ("plain", "a ConfigMap that there is not", lambda o: o.remove(find(o, "ConfigMap"))),
]
