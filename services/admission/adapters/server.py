"""The HTTPS server of the webhooks.

What cannot be judged (the API server does not answer our look-up) is answered with 500, which
leaves the decision to the failure policy: admit, or refuse.
"""

import asyncio
import errno
import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aiohttp import web

from services.admission.adapters.lookup import Lookup
from services.admission.adapters.reviews import answer, read_review
from services.admission.metrics import AdmissionMetrics
from services.admission.rules.catalogue import Hook
from services.admission.rules.review import Facts, Request, Terms, Verdict
from shared.runtime.clock import Clock
from shared.runtime.errors import PumiceError, Rejected
from shared.runtime.health import Gate
from shared.runtime.logs import Logger

BODY_MAX: Final = 3 * 1024 * 1024
"""As Volcano's (W02); the API server's own bound on an object is the same."""
_SHUTDOWN_S: Final = 2.0
_BAD_REQUEST, _TOO_LARGE, _UNSUPPORTED, _FAILED = 400, 413, 415, 500


class WebhookServer:
    """Serves the hooks; a part that runs until it is cancelled."""

    name: Final = "webhooks"

    def __init__(
        self,
        hooks: Sequence[Hook],
        *,
        lookup: Lookup,
        terms: Callable[[], Terms],
        context: ssl.SSLContext,
        gate: Gate,
        clock: Clock,
        metrics: AdmissionMetrics,
        log: Logger,
    ) -> None:
        self._lookup = lookup
        self._terms = terms
        self._context = context
        self._gate = gate
        self._clock = clock
        self._metrics = metrics
        self._log = log
        application = web.Application(client_max_size=BODY_MAX)
        for hook in hooks:
            application.router.add_post(hook.path, self._handler(hook))
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_S)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises Rejected when the port is taken."""
        await self._runner.setup()
        try:
            site = web.TCPSite(self._runner, host or None, port, ssl_context=self._context)
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise Rejected(_refusal(host, port, error), field="port") from error
        bound: int = self._runner.addresses[0][1]
        self._gate.set(ok=True)
        self._log.info("webhooks_listening", address=f"{host or '*'}:{bound}")
        return bound

    async def run(self) -> None:
        """Serve until cancelled, then finish what was begun."""
        try:
            await asyncio.Event().wait()
        finally:
            async with asyncio.timeout(2 * _SHUTDOWN_S):
                await self._runner.cleanup()

    def _handler(self, hook: Hook) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            begun_s = self._clock.monotonic()
            response, outcome = await self._respond(hook, request)
            self._metrics.answered(hook.path, outcome, self._clock.monotonic() - begun_s)
            return response

        return handle

    async def _respond(self, hook: Hook, request: web.Request) -> tuple[web.Response, str]:
        if request.content_type != "application/json":
            text = f"content type {request.content_type} is not application/json"
            return web.Response(status=_UNSUPPORTED, text=text), "malformed"
        try:
            uid, asked = read_review(await request.read())
        except web.HTTPRequestEntityTooLarge:
            text = f"the review is larger than {BODY_MAX} bytes"
            return web.Response(status=_TOO_LARGE, text=text), "malformed"
        except Rejected as error:
            return web.Response(status=_BAD_REQUEST, text=str(error)), "malformed"
        try:
            verdict = await self.judge(hook, asked)
        except PumiceError as error:
            self._log.warning("review_failed", hook=hook.path, reason=str(error))
            return web.Response(status=_FAILED, text=f"cannot judge now: {error}"), "failed"
        if not verdict.allowed:
            self._log.info(
                "object_refused",
                hook=hook.path,
                namespace=asked.namespace,
                name=asked.name,
                reason=verdict.message,
            )
        outcome = "allowed" if verdict.allowed else "refused"
        body = answer(uid, verdict)
        return web.Response(body=body, content_type="application/json"), outcome

    async def judge(self, hook: Hook, asked: Request) -> Verdict:
        """Return the verdict; a refusal rests on facts of now. Raises Retryable."""
        facts = await self._facts(hook, asked, fresh=hook.fresh)
        verdict = hook.judge(asked, facts, self._terms())
        if verdict.allowed or not hook.queues or hook.fresh:
            return verdict
        return hook.judge(asked, await self._facts(hook, asked, fresh=True), self._terms())

    async def _facts(self, hook: Hook, asked: Request, *, fresh: bool) -> Facts:
        if hook.namespace and asked.namespace:
            return Facts(namespace_annotations=await self._lookup.annotations(asked.namespace))
        if hook.queues:
            return Facts(queues=await self._lookup.queues(fresh=fresh))
        return Facts()


def _refusal(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken: choose another with --port"
    why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return f"cannot listen at {host or '*'}:{port}: {why}"
