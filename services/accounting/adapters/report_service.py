"""Replies to the queries that visibility sends over the bus; a part."""

import asyncio
from contextlib import aclosing
from typing import Final

from services.accounting.adapters.reports import UsageReports
from shared.bus.nats import NatsBus
from shared.bus.values import BusRequest
from shared.contracts import codec
from shared.contracts.reports import ReportReply
from shared.contracts.versions import ContractError
from shared.runtime.env import Env
from shared.runtime.errors import PumiceError, Rejected
from shared.runtime.tasks import TaskGroup

AT_ONCE: Final = 2
"""Reports that are computed at once."""


class ReportService:
    """Computes reports for requests on one subject."""

    name: Final = "reports"

    def __init__(
        self,
        reports: UsageReports,
        bus: NatsBus,
        *,
        subject: str,
        is_complete: asyncio.Event,
        env: Env,
    ) -> None:
        """`is_complete` is set once the database contains what happened before the start."""
        self._reports = reports
        self._bus = bus
        self._subject = subject
        self._is_complete = is_complete
        self._quarantine = env.quarantine
        self._log = env.log
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Reply until cancelled."""
        async with TaskGroup() as tasks, aclosing(self._bus.requests(self._subject)) as requests:
            async for request in requests:
                await self._slots.acquire()
                tasks.create_task(self._take(request), name="report")

    async def _take(self, request: BusRequest) -> None:
        try:
            reply = ReportReply(error="the report failed; the log of accounting has the error")
            with self._quarantine.isolate("reports", "query", stage="report"):
                reply = await self._reply(request)
            await self._bus.reply(request, codec.encode(reply))
        except PumiceError as error:
            self._log.warning("report_not_sent", reason=str(error))
        finally:
            self._slots.release()

    async def _reply(self, request: BusRequest) -> ReportReply:
        if not self._is_complete.is_set():
            return ReportReply(error="accounting reads what happened before its start")
        try:
            spec = codec.decode_report_request(request.payload).spec
            return ReportReply(status=await self._reports.report(spec))
        except ContractError as error:
            return ReportReply(error=str(error), field="spec")
        except Rejected as error:
            return ReportReply(error=str(error), field=error.field)
        except PumiceError as error:
            return ReportReply(error=str(error))
