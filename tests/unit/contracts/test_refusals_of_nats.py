"""Refusals of nats-server by their code: which may be tried again."""

import pytest

from shared.bus.api import ApiError, failure
from shared.bus.errors import SequenceInFlight, StreamFull, StreamMissing, WrongSequence
from shared.runtime.errors import PumiceError, Rejected, Retryable


@pytest.mark.parametrize(
    ("code", "err_code", "description", "kind"),
    [
        (400, 10071, "wrong last sequence: 5", WrongSequence),
        (400, 10164, "last sequence by subject mismatch", SequenceInFlight),
        (409, 10158, "duplicate message id is in process", Retryable),
        (503, 10077, "maximum bytes exceeded", StreamFull),
        (404, 10059, "stream not found", StreamMissing),
        (503, 10008, "JetStream system temporarily unavailable", Retryable),
        (400, 10003, "bad request", Rejected),
    ],
)
def test_a_refusal_is_raised_as_what_it_means(
    code: int, err_code: int, description: str, kind: type[PumiceError]
) -> None:
    error = ApiError(code=code, err_code=err_code, description=description)
    assert type(failure(error, about="publish")) is kind


BY_STATE = {
    10002: (400, "resource limits exceeded for account"),
    10005: (400, "no suitable peers for placement"),
    10026: (400, "maximum consumers limit reached"),
    10027: (400, "maximum number of streams reached"),
    10120: (400, "no JetStream default or applicable tiered limit present"),
    10004: (503, "incomplete results"),
    10008: (503, "JetStream system temporarily unavailable"),
    10009: (500, "JetStream cluster can not handle request"),
    10012: (500, "general consumer creation failure"),
    10014: (404, "consumer not found"),
    10023: (503, "insufficient resources"),
    10028: (500, "insufficient memory resources available"),
    10039: (503, "JetStream not enabled for account"),
    10047: (500, "insufficient storage resources available"),
    10059: (404, "stream not found"),
    10076: (503, "JetStream not enabled"),
    10077: (503, "no space left on device"),
}
"""Refusals that hang on what the server has at this moment, not on what was asked: its err_code,
with the HTTP code that it comes with."""


@pytest.mark.parametrize("err_code", BY_STATE)
def test_no_refusal_that_hangs_on_the_servers_state_ends_a_service(err_code: int) -> None:
    code, description = BY_STATE[err_code]
    error = ApiError(code=code, err_code=err_code, description=description)
    assert isinstance(failure(error, about="consumer"), Retryable)
