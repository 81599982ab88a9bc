"""The two API servers that must behave alike: `side` is the embedded one, then kube-apiserver.

The real side needs the built parts, so this folder's tests bear the mark `kube` and run in the
integration stage, on the real control plane that they share with its other tests (see
`tests/conftest.py`). There is one server of each kind per session and xdist worker, and a
namespace of its own for each check.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from tests.contract.apiserver.client import Side, opened
from tests.support.stack import embedded_plane


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def embedded_side(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Side]:
    """The embedded API server as a process, with our CRDs; no nodes yet."""
    async with (
        embedded_plane(tmp_path_factory.mktemp("embedded")) as plane,
        opened(plane, "embedded") as side,
    ):
        yield side


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real_side(control_plane: ControlPlane) -> AsyncIterator[Side]:
    """The real one of this session."""
    async with opened(control_plane, "real") as side:
        yield side


@pytest.fixture(params=["embedded", "real"])
def side(request: pytest.FixtureRequest) -> Side:
    """One of the two servers."""
    found: Side = request.getfixturevalue(f"{request.param}_side")
    return found
