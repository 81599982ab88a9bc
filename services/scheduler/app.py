"""Composition root of the scheduler: everything is built here and nowhere else."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from services.scheduler.adapters.conf_file import ConfFile
from services.scheduler.adapters.dumper import Dumper
from services.scheduler.adapters.entry_points import load_plugins
from services.scheduler.adapters.events import GangEvents
from services.scheduler.adapters.extender_http import ExtenderHttp
from services.scheduler.adapters.feed import OutcomeFeed, StateFeed
from services.scheduler.adapters.inbox import Inbox
from services.scheduler.adapters.plugin_failures import PluginFailures
from services.scheduler.adapters.publish import PlanPublisher
from services.scheduler.adapters.report import Report
from services.scheduler.adapters.usage_source import UsageBoard, UsageSource
from services.scheduler.cycle import Scheduler
from services.scheduler.dump import Options
from services.scheduler.engine.sharding import Mode, Sharding
from services.scheduler.policy.catalog import PLUGINS, Plugins
from services.scheduler.policy.plugins.extender import Extender
from services.scheduler.settings import SchedulerSettings
from services.scheduler.worker import Worker
from shared.bus.nats import NatsBus
from shared.bus.service import BusParts, bus_of
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from shared.runtime.inherited import idle_flags
from shared.runtime.service import Context
from shared.runtime.supervise import Part


async def build(settings: SchedulerSettings, ctx: Context) -> Sequence[Part]:
    """Return the parts of the scheduler."""
    return compose(settings, ctx, bus=bus_of(settings, ctx))


def compose(settings: SchedulerSettings, ctx: Context, *, bus: NatsBus) -> Sequence[Part]:
    """Return the parts on a bus that is there already."""
    if idle := idle_flags(settings):
        ctx.log.warning("flags_without_effect", flags=idle)
    subjects = Subjects(cluster=settings.cluster)
    declared = streams(settings.cluster)
    on_bus = BusParts(ctx, bus, streams=declared, cluster=settings.cluster)
    failures = PluginFailures(metrics=ctx.metrics, log=ctx.log)
    extender = ExtenderHttp(metrics=ctx.metrics, log=ctx.log)
    plugins: Plugins = {
        **PLUGINS,
        "extender": partial(Extender, post=extender),
        **load_plugins(PLUGINS, note=failures),
    }
    sharding = Sharding(
        mode=Mode(settings.scheduler_sharding_mode), name=settings.scheduler_sharding_name
    )
    usage = UsageBoard()
    worker = Worker(
        scheduler_names=settings.scheduler_name,
        seed=settings.seed,
        gang_message=settings.gang_message,
        settle_s=settings.status_settle,
        plugins=plugins,
        sharding=sharding,
        measured=usage.latest,
    )
    inbox = Inbox()
    conf = ConfFile(
        settings.scheduler_conf,
        clock=ctx.clock,
        log=ctx.log,
        changed=inbox.changed,
        plugins=plugins,
    )
    source = UsageSource(
        lambda: conf.config.metrics, usage, clock=ctx.clock, metrics=ctx.metrics, log=ctx.log
    )
    state = StateFeed(
        on_bus.state(worker.kinds), inbox, gate=ctx.readiness.gate("state"), log=ctx.log
    )
    outcomes = OutcomeFeed(
        bus,
        stream=declared.outcome.name,
        subjects=subjects,
        inbox=inbox,
        clock=ctx.clock,
        log=ctx.log,
    )
    announcer = on_bus.announcer()
    report = Report(
        metrics=ctx.metrics,
        events=GangEvents(announcer),
        gate=ctx.readiness.gate("scheduler"),
        log=ctx.log,
    )
    dumper = Dumper(
        bus,
        stream=declared.state.name,
        subjects=subjects,
        kinds=worker.kinds,
        options=Options(
            scheduler_names=settings.scheduler_name, seed=settings.seed, sharding=sharding
        ),
        instance=ctx.instance,
        directory=settings.cache_dump_dir if settings.cache_dumper else "",
        limit_mib=settings.cache_dump_limit,
        clock=ctx.clock,
        log=ctx.log,
    )
    scheduler = Scheduler(
        settings=settings,
        worker=worker,
        inbox=inbox,
        state=state,
        outcomes=outcomes,
        conf=conf,
        publisher=PlanPublisher(
            bus,
            streams=declared,
            subjects=subjects,
            partitions=settings.partitions,
            log=ctx.log,
        ),
        leadership=on_bus.leadership(declared.command.name, guard="command"),
        report=report,
        dumper=dumper,
        executor=ThreadPoolExecutor(max_workers=1, thread_name_prefix="scheduler"),
        faults=ctx.faults,
        clock=ctx.clock,
        log=ctx.log,
    )
    declarer = on_bus.declarer(
        [declared.command, declared.desired, declared.outcome, declared.events, declared.lease]
    )
    sources: list[Part] = [state, outcomes, source, extender]
    return [bus, declarer, on_bus.members(), conf, *sources, scheduler, dumper, announcer]
