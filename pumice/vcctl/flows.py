"""The commands for JobFlows."""

from collections.abc import Mapping

from pumice.vcctl import declared, tables
from pumice.vcctl.cluster import Cluster
from pumice.vcctl.flags import Value, text
from shared.api.kinds import JOBFLOW


async def create(cluster: Cluster, values: Mapping[str, Value]) -> str:
    """Create the JobFlows of a file."""
    return await declared.create(cluster, values, JOBFLOW)


async def show(cluster: Cluster, values: Mapping[str, Value]) -> str:
    """List JobFlows."""
    namespace = "" if values["all-namespaces"] else text(values, "namespace")
    return tables.flows(await cluster.items(JOBFLOW, namespace), cluster.now_s)


async def get(cluster: Cluster, values: Mapping[str, Value]) -> str:
    """Show one JobFlow."""
    return tables.flows([await declared.one(cluster, values, JOBFLOW, "jobflow")], cluster.now_s)


async def delete(cluster: Cluster, values: Mapping[str, Value]) -> str:
    """Delete JobFlows."""
    return await declared.delete(cluster, values, JOBFLOW, "jobflow")


async def describe(cluster: Cluster, values: Mapping[str, Value]) -> str:
    """Print JobFlows as documents."""
    return await declared.describe(cluster, values, JOBFLOW)
