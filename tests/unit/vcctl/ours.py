"""Runs a line of vcctl in this process: outputs, exit code, and the requests that it makes."""

import contextlib
import io
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from pumice.vcctl import cluster, main
from shared.kube.errors import Refusal, read_status, refusal
from shared.kube.wire import Request, Transport


class Ended(NamedTuple):
    """How a line ended."""

    out: str
    err: str
    code: int


def words(line: str) -> tuple[dict[str, str], list[str]]:
    """Return variables and words of a line of a story."""
    parts = shlex.split(line)
    count = next(i for i, part in enumerate(parts) if "=" not in part)
    return dict(part.split("=", 1) for part in parts[:count]), parts[count:]


def run(
    line: Sequence[str],
    transport: Transport | None = None,
    *,
    now_s: float = 0.0,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Ended:
    """Run a line on a transport, without one on the cluster that it names itself."""
    out, err = io.StringIO(), io.StringIO()

    async def connect(_: object) -> cluster.ClusterClient:
        assert transport is not None
        return cluster.ClusterClient(transport, now_s=now_s)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, environ or {}))
        if transport is not None:
            stack.enter_context(mock.patch.object(cluster, "connect", connect))
        if folder is not None:
            stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        code = main.main(line[0], list(line[1:]))
    return Ended(out.getvalue(), err.getvalue(), code)


class Recording:
    """A transport that writes down what is asked over another and what comes back."""

    def __init__(self, way: Transport) -> None:
        self._way = way
        self.host = way.host
        self.asked: list[list] = []

    async def exchange(self, request: Request) -> bytes:
        entry = [*key(request), 200, None]
        self.asked.append(entry)
        try:
            data = await self._way.exchange(request)
        except Refusal as error:
            entry[3:] = [error.status.code, error.status.message]
            raise
        entry[4] = json.loads(data)
        return data

    async def close(self) -> None:
        """Leave the other open."""


class Replay:
    """A transport that expects the requests that were recorded, in their order, and answers so."""

    host = "https://127.0.0.1:6443"

    def __init__(self, asked: Sequence[Sequence]) -> None:
        self.left = list(asked)

    async def exchange(self, request: Request) -> bytes:
        *expected, code, body = self.left.pop(0)
        assert key(request) == expected
        if code >= 400:
            status = json.dumps({"code": code, "message": body}).encode()
            raise refusal(request.doing, read_status(code, status))
        return json.dumps(body).encode()

    async def close(self) -> None:
        """Nothing is open."""


def key(request: Request) -> list:
    """Return the parts of a request that matter, as JSON has them."""
    body = None if request.body is None else json.loads(request.body)
    path = request.path + "".join(f"&{name}={value}" for name, value in request.query)
    return [request.method, path, body]
