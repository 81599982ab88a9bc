"""Bodies of requests with a bound, for servers on aiohttp."""

from aiohttp import web


class BodyTooLargeError(Exception):
    """A body is larger than the server accepts."""


async def read_body(request: web.BaseRequest, *, most: int) -> bytes:
    """Return the body. Raises BodyTooLargeError as soon as it is known to be larger than `most`."""
    if (request.content_length or 0) > most:
        raise BodyTooLargeError
    body = bytearray()
    while chunk := await request.content.readany():
        body += chunk
        if len(body) > most:
            raise BodyTooLargeError
    return bytes(body)
