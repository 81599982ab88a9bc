"""The embedded API server as a process.

`python -m pumice.embedded.apiserver --directory D --port P`: the directory is that of a local
stack, with certificates and token in its `pki`. With `--journal` the objects are kept in a file
there. `pumice.local.embedded` starts it.
"""

import argparse
import asyncio
import contextlib
import gc
import signal
import sys
import time
import uuid
from pathlib import Path

from pumice.embedded.apiserver.core import ApiServer
from pumice.embedded.apiserver.front_proxy import FrontProxy, request_headers
from pumice.embedded.apiserver.http import HttpFrontend, tls_of
from pumice.embedded.apiserver.journal import StoreJournal
from pumice.local.ports import LOOPBACK
from shared.runtime.tasks import TaskGroup

_GC_THRESHOLD = 50_000
"""Allocations between garbage collections: bytes and flat dicts rarely form cycles."""


def main(argv: list[str]) -> int:
    """Serve until a signal; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m pumice.embedded.apiserver", description=__doc__
    )
    parser.add_argument("--directory", type=Path, required=True, help="directory of a local stack")
    parser.add_argument("--port", type=int, required=True, help="port on the loopback")
    parser.add_argument("--journal", action="store_true", help="keep the objects in a file")
    options = parser.parse_args(argv)
    gc.set_threshold(_GC_THRESHOLD, 50, 100)
    asyncio.run(_serve(options.directory, options.port, journal=options.journal))
    return 0


async def _serve(directory: Path, port: int, *, journal: bool) -> None:
    core = ApiServer(now=time.time, uids=lambda: str(uuid.uuid4()))
    store_journal = StoreJournal(directory / "objects.jsonl") if journal else None
    if store_journal is not None:
        core.load_journal(store_journal)
    pki = directory / "pki"
    token = (pki / "tokens.csv").read_text("utf-8").split(",", 1)[0]
    tls = tls_of(
        cert=str(pki / "server.crt"), key=str(pki / "server.key"), client_ca=str(pki / "ca.crt")
    )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with TaskGroup() as tasks:
        front_proxy = FrontProxy(
            core.aggregation,
            cert=str(pki / "front-proxy-client.crt"),
            key=str(pki / "front-proxy-client.key"),
        )
        core.aggregation.trust(request_headers((pki / "front-proxy-ca.crt").read_text("utf-8")))
        frontend = HttpFrontend(core, token=token, journal=store_journal, front_proxy=front_proxy)
        serving = tasks.create_task(frontend.serve(host=LOOPBACK, port=port, tls=tls), name="serve")
        await stop.wait()
        serving.cancel()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
