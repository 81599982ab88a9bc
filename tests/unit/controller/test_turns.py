"""Namespaces take turns in the work queue of every controller."""

import asyncio

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)

from services.controller.adapters.companions import key_pair
from services.controller.controllers import CONTROLLERS
from tests.support.clock import settle
from tests.support.reconcilers import Process, Stage

MANY = 600


@pytest.mark.parametrize("row", CONTROLLERS, ids=lambda row: row.name)
async def test_many_objects_of_one_namespace_do_not_hold_up_those_of_another(row) -> None:
    queue = Process(Stage()).controllers[row.reconciler.name].queue
    for i in range(MANY):
        queue.add(f"many/{i}")
    queue.add("other/gang")
    served: list[str] = []

    async def serve(key: str) -> None:
        served.append(key)

    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(queue.run(serve, workers=1))
        await settle()
        serving.cancel()
    assert served.index("other/gang") <= 1
    assert sorted(served) == sorted([*(f"many/{i}" for i in range(MANY)), "other/gang"])


def test_the_keys_of_a_job_are_of_a_kind_that_costs_next_to_nothing_to_make_jp3() -> None:
    """RSA takes 40 ms and more of the event loop for each job that asks for keys."""
    pair = key_pair()
    private = load_ssh_private_key(pair.private.encode(), password=None)
    assert isinstance(private, Ed25519PrivateKey)
    public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    assert pair.public == f"{public.decode()}\n"
    assert pair.private != key_pair().private
