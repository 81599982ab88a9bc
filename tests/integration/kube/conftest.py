"""A client of the shared control plane, and service accounts of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.kube.client import Kube
from shared.kube.config import connect
from tests.support.accounts import Accounts


@pytest.fixture
async def kube(kubeconfig: Path) -> AsyncIterator[Kube]:
    async with await connect(str(kubeconfig), user_agent="pumice-test/1") as kube:
        yield kube


@pytest.fixture
def accounts(kube: Kube, namespace: str, kubeconfig: Path) -> Accounts:
    return Accounts(kube, namespace, kubeconfig)
