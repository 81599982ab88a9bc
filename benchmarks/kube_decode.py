"""Cost of reading pods: our views, plain JSON, and kubernetes-asyncio's models.

Run it alone on an idle machine: `python benchmarks/kube_decode.py [pods]`. No server is needed.
The figures are quoted in docs/adr/0003-kubernetes-requests-go-through-our-own-typed-client.md.
"""

import gc
import json
import sys
import time
import tracemalloc
from collections.abc import Callable

import msgspec
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.client.rest import RESTResponse

from shared.api.kinds import POD
from shared.kube.decode import KindDecoder

LABELS = {"app": "mnist", "volcano.sh/job-name": "mnist", "volcano.sh/task-spec": "worker"}
CONDITIONS = [
    {"type": t, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for t in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
]


def pod(index: int) -> dict[str, object]:
    """A running pod as the API server writes it, managed fields included (2.7 KB)."""
    name = f"mnist-worker-{index}"
    managed = {
        f"f:{part}": {f"f:{i}": {} for i in range(12)} for part in ("metadata", "spec", "status")
    }
    container = {
        "name": "main",
        "image": "tensorflow/tensorflow:2.16.1",
        "command": ["sh", "-c", "python /opt/mnist.py --steps 1000"],
        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"cpu": "2"}},
        "env": [{"name": f"ENV_{i}", "value": "value"} for i in range(8)],
        "ports": [{"containerPort": 2222, "name": "tfjob", "protocol": "TCP"}],
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io"}],
        "imagePullPolicy": "IfNotPresent",
    }
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"00000000-0000-0000-0000-{index:012}",
            "resourceVersion": str(1000 + index),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": LABELS,
            "annotations": {"scheduling.k8s.io/group-name": "mnist-0123456789"},
            "ownerReferences": [
                {
                    "apiVersion": "batch.volcano.sh/v1alpha1",
                    "kind": "Job",
                    "name": "mnist",
                    "uid": "11111111-0000-0000-0000-000000000000",
                    "controller": True,
                }
            ],
            "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": managed}],
        },
        "spec": {
            "nodeName": f"node-{index % 100}",
            "schedulerName": "volcano",
            "restartPolicy": "OnFailure",
            "containers": [container],
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute"}] * 2,
            "volumes": [{"name": "token", "projected": {"sources": [], "defaultMode": 420}}],
        },
        "status": {
            "phase": "Running",
            "conditions": CONDITIONS,
            "podIP": "10.0.0.1",
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "tensorflow",
                    "imageID": "",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        },
    }


def measure(name: str, count: int, run: Callable[[], object], repeats: int = 3) -> None:
    """Print objects per second (best of `repeats`) and the memory that the result holds."""
    best_s = float("inf")
    for _ in range(repeats):
        gc.collect()
        start = time.perf_counter()
        run()
        best_s = min(best_s, time.perf_counter() - start)
    tracemalloc.start()
    result = run()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del result
    each_us = best_s / count * 1e6
    print(f"{name:34} {count / best_s:>9,.0f}/s {each_us:>8.1f} us {held / count:>8,.0f} B")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    pods = [pod(index) for index in range(count)]
    page = json.dumps(
        {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": pods}
    ).encode()
    lines = [msgspec.json.encode({"type": "ADDED", "object": p}) + b"\n" for p in pods]
    blocks = [b"".join(lines[i : i + 100]) for i in range(0, count, 100)]
    decoder = KindDecoder(POD)
    library = ApiClient.__new__(ApiClient)
    library.configuration = Configuration()
    library.client_side_validation = False

    def library_list() -> object:
        answer = RESTResponse.__new__(RESTResponse)
        answer.data = page.decode()
        return library.deserialize(answer, "V1PodList")

    print(f"{count} pods of {len(page) // count} bytes; time and memory held per pod")
    measure("list: typed views", count, lambda: decoder.page(page))
    measure("list: json.loads", count, lambda: json.loads(page))
    measure("list: kubernetes-asyncio models", count, library_list, repeats=1)
    measure("watch: typed views", count, lambda: [decoder.events(block) for block in blocks])
    measure("watch: json.loads", count, lambda: [json.loads(line) for line in lines])


if __name__ == "__main__":
    main()
