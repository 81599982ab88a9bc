"""Stands in for `spark-submit` in cluster mode: creates the driver pod that Spark would create.

The Spark operator runs it with the properties of a SparkApplication. It needs no Java, and the pods
of executors, which a driver that runs creates, do not come about.
"""

import argparse
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.api import connect

_DRIVER: Final = "spark.kubernetes.driver"


def driver_pod(properties: dict[str, str]) -> dict[str, Any]:
    """Return the driver pod for properties of Spark."""
    cpu = properties.get(f"{_DRIVER}.request.cores") or properties["spark.driver.cores"]
    memory = properties["spark.driver.memory"].replace("g", "Gi").replace("m", "Mi")
    return {
        "metadata": {
            "name": properties[f"{_DRIVER}.pod.name"],
            "labels": {**_below(f"{_DRIVER}.label.", properties), "spark-role": "driver"},
            "annotations": _below(f"{_DRIVER}.annotation.", properties),
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "spark-kubernetes-driver",
                    "image": properties[f"{_DRIVER}.container.image"],
                    "resources": {
                        "requests": {"cpu": cpu, "memory": memory},
                        "limits": {"memory": memory},
                    },
                }
            ],
        },
    }


def _below(prefix: str, properties: dict[str, str]) -> dict[str, str]:
    """Return the properties below a prefix by the rest of their names."""
    return {
        name.removeprefix(prefix): value
        for name, value in properties.items()
        if name.startswith(prefix)
    }


async def _submit(properties: dict[str, str]) -> None:
    async with connect(Path(os.environ["KUBECONFIG"])) as api:
        await api.create("pods", driver_pod(properties), properties["spark.kubernetes.namespace"])


def main(argv: Sequence[str] | None = None) -> None:
    """Create the driver pod of an application."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conf", action="append", default=[], help="a property: NAME=VALUE")
    args, _ = parser.parse_known_args(argv)
    asyncio.run(_submit(dict(each.split("=", 1) for each in args.conf)))


if __name__ == "__main__":
    main()
