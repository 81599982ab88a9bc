"""A control plane of this folder's own, which asks whether owners may be held back."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from pumice.local.fleet import NodeShape
from tests.support.stack import real_plane

OWNERS = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def guarded_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """A control plane with three nodes, on which the rules on finalizers are needed."""
    directory = tmp_path_factory.mktemp("guarded")
    async with real_plane(directory, apiserver_flags=(OWNERS,)) as plane:
        await plane.add_nodes(NodeShape(count=3))
        yield plane
