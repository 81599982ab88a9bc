"""Sends the queries of usage reports to accounting, over the bus."""

from collections.abc import Callable, Mapping
from typing import Final

from shared.api.usage_reports import UsageReportSpec, UsageReportStatus
from shared.bus.errors import StreamMissing
from shared.bus.nats import NatsBus
from shared.contracts import codec
from shared.contracts.reports import ReportRequest
from shared.contracts.usage import QueueUsage
from shared.contracts.versions import ContractError
from shared.runtime.errors import Rejected, Retryable

TIMEOUT_S: Final = 45.0
"""Accounting gives up before."""
_ABSENT: Final = (
    "reports need the add-on accounting, which does not run; docs/accounting.md says how to "
    "switch it on"
)


class ReportClient:
    """Requests reports from accounting."""

    def __init__(
        self, bus: NatsBus, *, subject: str, published: Callable[[], Mapping[str, QueueUsage]]
    ) -> None:
        """Take `published`, which returns queue → usage that accounting published last."""
        self._bus = bus
        self._subject = subject
        self.published: Final = published

    async def report(self, spec: UsageReportSpec) -> UsageReportStatus:
        """Return the report. Raises Rejected for an invalid query, Retryable for other errors."""
        payload = codec.encode(ReportRequest(spec=spec))
        try:
            raw = await self._bus.request(self._subject, payload, timeout_s=TIMEOUT_S)
            reply = codec.decode_report_reply(raw)
        except StreamMissing as error:
            raise Retryable(_ABSENT) from error
        except ContractError as error:
            raise Retryable(f"the reply of accounting cannot be read: {error}") from error
        if reply.status is None:
            if reply.field:
                raise Rejected(reply.error, field=reply.field)
            raise Retryable(reply.error)
        return reply.status
