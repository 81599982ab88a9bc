"""Composition root of accounting: everything is built here and nowhere else."""

from collections.abc import Sequence
from typing import Final

from pumice.events.tls import TlsClient
from services.accounting.adapters.budget_periods import BudgetPeriods
from services.accounting.adapters.database import engine_of
from services.accounting.adapters.past_usage import PastUsagePublisher, UsageSums
from services.accounting.adapters.recorder import KINDS, Recorder
from services.accounting.adapters.report_service import ReportService
from services.accounting.adapters.reports import UsageReports
from services.accounting.adapters.store import AccountingDatabase
from services.accounting.adapters.usage_metrics import UsageMetrics
from services.accounting.settings import METRICS_BY, AccountingSettings
from shared.bus.client import Dial
from shared.bus.service import BusComponents, bus_of
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from shared.runtime.service import Context
from shared.runtime.supervise import Part

SERVICE: Final = "accounting"
_SHOWN_S: Final = 60.0
"""How long a report that failed is shown."""


async def build(
    settings: AccountingSettings, context: Context, dial: Dial = TlsClient
) -> Sequence[Part]:
    """Return the parts of accounting. Raises Rejected for settings that cannot work."""
    engine = engine_of(settings.database, settings.database_password)
    bus = bus_of(settings, context, dial)
    needed, subjects = streams(settings.cluster), Subjects(cluster=settings.cluster)
    on_bus = BusComponents(context, bus, streams=needed, settings=settings)
    recorder = Recorder(
        bus,
        AccountingDatabase(engine),
        lambda: on_bus.state(KINDS),
        streams=needed,
        scheduler_names=settings.scheduler_name,
        gate=context.readiness.gate("database"),
        env=context,
    )
    past_usage = PastUsagePublisher(
        UsageSums(engine, settings.usage_half_life),
        BudgetPeriods(engine, settings.scheduler_conf, context.log),
        bus,
        half_life_s=settings.usage_half_life,
        streams=needed,
        subjects=subjects,
        is_complete=recorder.complete,
        env=context,
    )
    reports = UsageReports(engine, clock=context.clock)
    parts: list[Part] = [
        bus,
        on_bus.leases,
        on_bus.check(needed.state, needed.events, needed.lease, needed.usage),
        on_bus.members(),
        recorder,
        past_usage,
        ReportService(
            reports,
            bus,
            subject=subjects.reports,
            is_complete=recorder.complete,
            env=context.forgetting(_SHOWN_S),
        ),
    ]
    if by := METRICS_BY.get(settings.usage_metrics):
        is_complete = recorder.complete
        parts.append(UsageMetrics(reports, by=by, is_complete=is_complete, env=context))
    return parts
