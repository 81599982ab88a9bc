"""Programs that send a workload in place of a plain request: a DAG run of Airflow, spark-submit."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from pumice.local.control_plane import ControlPlane
from pumice.local.errors import LocalError
from pumice.local.process import Process, ProcessSpec
from tools.frameworks_check.environments import environment, pinned, spark_home

_EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "frameworks"
_APP: Final = Path(__file__).with_name("spark_app.py")
_END_S: Final = 60.0
_GRACE_S: Final = 5.0
Object = dict[str, Any]


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What a program gets."""

    workload: Object
    folder: Path
    """A folder of this submission alone."""
    plane: ControlPlane

    @property
    def end(self) -> Path:
        """File whose presence tells the program to end."""
        return self.folder / "end"


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command line and its environment."""

    argv: Sequence[str]
    environ: Mapping[str, str]


class Submitter(msgspec.Struct, frozen=True, kw_only=True):
    """A program that sends workloads."""

    title: str
    environment: str
    package: str
    """Package of its environment whose version counts."""
    command: Callable[[Submission], Command]
    creates: bool
    """Whether it creates the workload; it is created before otherwise."""

    @property
    def version(self) -> str:
        """Version of its package."""
        return pinned(self.environment, self.package)


class Submitted:
    """A program that was started for one workload."""

    def __init__(self, submitter: Submitter, submission: Submission) -> None:
        submission.folder.mkdir(parents=True)
        command = submitter.command(submission)
        self._end = submission.end
        self._ends = not submitter.creates
        self._process = Process(
            ProcessSpec(
                name=submission.folder.name,
                argv=tuple(command.argv),
                log=submission.folder / "log",
                environ={"KUBECONFIG": str(submission.plane.kubeconfig), **command.environ},
                cwd=submission.folder,
                nice=5,
            )
        )
        self._process.start()

    async def succeeded(self) -> bool:
        """Tell it to end; return True once it has. Raises LocalError if it failed."""
        self._end.touch()
        code = self._process.exit_code
        if code:
            raise LocalError(self._process.describe_end())
        return code == 0

    async def stop(self) -> None:
        """Have it end; one that does not know how to is stopped."""
        self._end.touch()
        if self._ends:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await self._process.exited()
        await self._process.stop(grace_s=_GRACE_S)


_DAG_RUN: Final = """
import airflow_dag
airflow_dag.prepare.get_logs = False  # fake nodes have none
airflow_dag.prepare.annotations["pumice.dev/run-seconds"] = "1"
if __name__ == "__main__":  # Airflow imports all files of the folder
    raise SystemExit(airflow_dag.dag.test().state != "success")
"""


def _airflow(submission: Submission) -> Command:
    folder = submission.folder
    shutil.copy(_EXAMPLES / "airflow_dag.py", folder)
    (folder / "airflow-job.yaml").write_text(yaml.safe_dump(submission.workload), "utf-8")
    (folder / "run.py").write_text(_DAG_RUN, "utf-8")
    binaries = environment("airflow") / "bin"
    script = f"{binaries}/airflow db migrate && exec {binaries}/python run.py"
    return Command(
        argv=("/bin/sh", "-c", script),
        environ={
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
            "AIRFLOW__CORE__DAGS_FOLDER": str(folder),
            "PATH": f"{binaries}:{os.environ['PATH']}",
        },
    )


def _spark(submission: Submission) -> Command:
    home = spark_home()
    metadata = submission.workload["metadata"]
    name = metadata["name"]
    changed = {
        "spark.kubernetes.namespace": metadata["namespace"],
        "spark.kubernetes.executor.annotation.scheduling.k8s.io/group-name": name,
        "spark.kubernetes.executor.podNamePrefix": name,
        "spark.executor.instances": submission.workload["spec"]["minMember"],
        "spark.ui.enabled": "false",
    }
    return Command(
        argv=(
            str(home / "bin" / "spark-submit"),
            f"--master=k8s://{submission.plane.url}",
            "--deploy-mode=client",
            f"--properties-file={_EXAMPLES / 'spark.conf'}",
            *(f"--conf={key}={value}" for key, value in changed.items()),
            str(_APP),
            str(submission.end),
        ),
        environ={
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(environment("spark") / "bin" / "python"),
        },
    )


AIRFLOW: Final = Submitter(
    title="Airflow",
    environment="airflow",
    package="apache-airflow",
    command=_airflow,
    creates=True,
)
SPARK_SUBMIT: Final = Submitter(
    title="Spark", environment="spark", package="pyspark", command=_spark, creates=False
)
