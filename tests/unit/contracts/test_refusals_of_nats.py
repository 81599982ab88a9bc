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
