"""HTTP calls to pods that will be evicted. No answer changes what happens to the pod."""

from typing import Final

import aiohttp

from shared.runtime.logs import Logger

_TIMEOUT_S: Final = 5.0
_HEADER_BYTES: Final = 4096


async def call_pod(url: str, pod: str, *, timeout_s: float, log: Logger) -> bool:
    """POST to a pod; return whether it answers, with whatever status.

    The request has no body and no cookies. Redirects and proxies are not followed, and the body of
    the answer is not read. A pod that does not answer has its notice, and its grace.
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
            return True
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        log.warning("checkpoint_signal_failed", pod=pod, reason=reason)
        return False
