"""An Airflow DAG: a pod of its own prepares data, then a gang trains on it.

`python airflow_dag.py` runs it in this process, against the cluster of KUBECONFIG.
"""

from datetime import timedelta
from pathlib import Path

import yaml
from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.cncf.kubernetes.operators.resource import KubernetesCreateResourceOperator
from airflow.sdk import DAG, task
from kubernetes.client import V1ResourceRequirements

FILE = Path(__file__).with_name("airflow-job.yaml")
JOB = yaml.safe_load(FILE.read_text())
NAME = JOB["metadata"]["name"]
NAMESPACE = JOB["metadata"].get("namespace", "default")

with DAG("train", schedule=None) as dag:
    prepare = KubernetesPodOperator(
        task_id="prepare",
        name=f"{NAME}-prepare",
        namespace=NAMESPACE,
        image="example.com/prepare:1",
        container_resources=V1ResourceRequirements(requests={"memory": "256Mi"}),
        schedulername="volcano",
        priority_class_name="high-priority",
        annotations={"scheduling.volcano.sh/queue-name": "research"},
        schedule_timeout_seconds=3600,  # a pod may wait in its queue for so long
        startup_timeout_seconds=3600,
    )
    train = KubernetesCreateResourceOperator(
        task_id="train",
        namespace=NAMESPACE,
        yaml_conf=FILE.read_text(),
        custom_resource_definition=True,
    )

    @task.sensor(poke_interval=5, timeout=timedelta(days=1), mode="reschedule")
    def trained() -> bool:
        """Return whether the job has completed; fail if it ended otherwise."""
        job = KubernetesHook().get_custom_object(
            "batch.volcano.sh", "v1alpha1", "jobs", NAME, NAMESPACE
        )
        phase = job.get("status", {}).get("state", {}).get("phase")
        if phase in {"Failed", "Aborted", "Terminated"}:
            raise RuntimeError(f"job {NAME} is {phase}")
        return phase == "Completed"

    prepare >> train >> trained()

if __name__ == "__main__":
    run = dag.test()
    raise SystemExit(0 if run.state == "success" else 1)
