"""HTTP calls to pods that will be evicted. No answer changes what happens to the pod."""

from typing import Final

import aiohttp

from shared.runtime.logs import Logger

_TIMEOUT_S: Final = 5.0
_HEADER_BYTES: Final = 4096


async def call_pod(url: str, pod: str, *, timeout_s: float, log: Logger) -> None:
    """POST to a pod: without a body, a redirect, a proxy or cookies; its answer's body is not read.

    A pod that does not answer has its notice on the pod itself, and its grace.
    """
    try:
        async with (
            aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=min(timeout_s, _TIMEOUT_S)),
                trust_env=False,
                max_line_size=_HEADER_BYTES,
                max_field_size=_HEADER_BYTES,
            ) as session,
            session.post(url, allow_redirects=False) as response,
        ):
            log.info("checkpoint_signalled", pod=pod, status=response.status)
            response.close()
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        log.warning("checkpoint_signal_failed", pod=pod, reason=reason)
