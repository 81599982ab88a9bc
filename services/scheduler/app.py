"""Composition root of the scheduler: everything is built here and nowhere else."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from pumice.events.tls import TlsClient
from services.scheduler.adapters.conf_file import ConfFile, node_labels
from services.scheduler.adapters.conf_reloads import ConfigurationReloads
from services.scheduler.adapters.dumper import Dumper
from services.scheduler.adapters.entry_points import PluginFailures, load_plugins
from services.scheduler.adapters.expressions import Expressions
from services.scheduler.adapters.extender_http import ExtenderHttp
from services.scheduler.adapters.feed import Inbox, OutcomeFeed, PastUsageFeed, StateFeed
from services.scheduler.adapters.marker import WatchdogFiles
from services.scheduler.adapters.publish import PlanPublisher, WaitPublisher
from services.scheduler.adapters.report import GangEvents, Report, Timings
from services.scheduler.adapters.usage_source import UsageSource, UsageStore
from services.scheduler.adapters.watchdog import DecisionBudget, Shared, Watchdog
from services.scheduler.config import DEFAULT_TEXT, SINGLE_PODS_TEXT
from services.scheduler.cycle import Scheduler, SchedulerInputs, SchedulerOutputs
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.engine.state.shards import Sharding, ShardMode
from services.scheduler.policy.catalog import PLUGINS, Plugins
from services.scheduler.policy.plugins.extender import Extender
from services.scheduler.scheduler_state import Measurements, SchedulerState
from services.scheduler.settings import SchedulerSettings
from shared.bus.client import Dial
from shared.bus.nats import NatsBus
from shared.bus.service import BusComponents, bus_of
from shared.contracts.messages import SCHEDULING
from shared.contracts.streams import Streams, all_streams, streams
from shared.contracts.subjects import SINGLE_PODS, Subjects
from shared.election.installation import InstallationLeadership
from shared.runtime.common import QUEUE_ADMISSION, inert_flags, is_feature_on
from shared.runtime.service import Context
from shared.runtime.supervise import Part

SERVICE: Final = "scheduler"


async def build(
    settings: SchedulerSettings, context: Context, dial: Dial = TlsClient
) -> Sequence[Part]:
    """Return the parts of the scheduler."""
    return compose(settings, context, bus=bus_of(settings, context, dial))


def compose(settings: SchedulerSettings, context: Context, *, bus: NatsBus) -> Sequence[Part]:
    """Return the parts on a bus that is there already."""
    if idle := inert_flags(settings):
        context.log.warning("flags_without_effect", flags=idle)
    return _SchedulerBuilder(settings, context, bus).parts()


class _SchedulerBuilder:
    """Makes the parts; lives only during `build`."""

    def __init__(self, settings: SchedulerSettings, context: Context, bus: NatsBus) -> None:
        self._settings = settings
        self._context = context
        self._bus = bus
        self._streams: Streams = streams(settings.cluster)
        self._subjects = Subjects(cluster=settings.cluster)
        self._on_bus = BusComponents(context, bus, streams=self._streams, settings=settings)
        self._decision_settings = DecisionSettings(
            scheduler_names=settings.scheduler_name,
            seed=settings.seed,
            sharding=Sharding(
                mode=ShardMode(settings.scheduler_sharding_mode),
                name=settings.scheduler_sharding_name,
            ),
            queue_gates=is_feature_on(settings.feature_gates, QUEUE_ADMISSION),
            csi_storage=settings.csi_storage,
            mindcluster=settings.mindcluster_npus,
            node_labels=node_labels(settings.node_selector),
            single_pods=settings.single_pods,
        )
        self._extender = ExtenderHttp(metrics=context.metrics, log=context.log)
        failures = PluginFailures(metrics=context.metrics, log=context.log)
        self._plugins: Plugins = {
            **PLUGINS,
            "extender": partial(Extender, post=self._extender),
            **load_plugins(PLUGINS, note=failures),
        }
        self._usage = UsageStore()
        self._past_usage = PastUsageFeed(bus, stream=self._streams.usage, env=context)
        self._inbox = Inbox()
        self._installation = InstallationLeadership(
            SCHEDULING,
            required=settings.leader_elect,
            clock=context.clock,
            gate=context.readiness.gate("leadership"),
            log=context.log,
        )
        self._installation.on_change(self._inbox.changed.set)
        # A cycle does not wait for expressions: it is run again once they are evaluated.
        self._expressions = Expressions(
            wait_s=0.0, changed=self._inbox.changed.set, log=context.log
        )
        self._event_publisher = self._on_bus.event_publisher()
        self._watchdog = self._make_watchdog()
        self._scheduler_state = self._make_scheduler_state()
        self._explained = WaitPublisher(
            bus.publisher(self._streams.waiting.name),
            subjects=self._subjects,
            env=context,
        )

    def _default_configuration(self) -> str | None:
        if self._settings.disable_default_scheduler_config:
            return None
        return SINGLE_PODS_TEXT if self._settings.single_pods else DEFAULT_TEXT

    def parts(self) -> Sequence[Part]:
        """Return everything that has to run."""
        context, needed = self._context, self._streams
        reloads = ConfigurationReloads(
            context,
            event_publisher=self._event_publisher,
        )
        conf = ConfFile(
            self._settings.scheduler_conf,
            clock=context.clock,
            log=context.log,
            changed=self._inbox.changed,
            default=self._default_configuration(),
            plugins=self._plugins,
            note=reloads.note,
        )
        state, outcomes, dumper = self._state(), self._outcomes(), self._dumper()
        return [
            self._bus,
            self._on_bus.leases,
            self._on_bus.check(*all_streams(needed)),
            self._on_bus.members(),
            conf,
            state,
            outcomes,
            self._usage_source(conf),
            self._past_usage,
            self._extender,
            self._expressions,
            self._scheduler(conf=conf, state=state, outcomes=outcomes, dumper=dumper),
            dumper,
            self._event_publisher,
            self._explained,
            self._watchdog,
        ]

    def _make_watchdog(self) -> Watchdog:
        """Return the watchdog. Raises Rejected when its directory cannot be used."""
        settings = self._settings
        role = SINGLE_PODS if settings.single_pods else ""
        return Watchdog(
            DecisionBudget(budget_s=settings.decision_budget, limit_s=settings.decision_limit),
            marker=WatchdogFiles(settings.watchdog_dir),
            shared=Shared(
                bus=self._bus,
                stream=self._streams.lease.name,
                subject=self._subjects.quarantine(role),
            ),
            event_publisher=self._event_publisher,
            context=self._context,
        )

    def _make_scheduler_state(self) -> SchedulerState:
        settings = self._settings
        return SchedulerState(
            self._decision_settings,
            gang_message=settings.gang_message,
            settle_s=settings.status_settle,
            plugins=self._plugins,
            evaluator=self._expressions.evaluator,
            measured=Measurements(self._usage.latest, self._past_usage.latest),
            progress=self._watchdog.progress,
            ended=Timings(self._context.metrics, monotonic=self._context.clock.monotonic),
        )

    def _state(self) -> StateFeed:
        context = self._context
        return StateFeed(
            self._on_bus.state(self._scheduler_state.kinds),
            self._inbox,
            installation=self._installation,
            gate=context.readiness.gate("state"),
            log=context.log,
        )

    def _outcomes(self) -> OutcomeFeed:
        context = self._context
        return OutcomeFeed(
            self._bus,
            stream=self._streams.outcome.name,
            subjects=self._subjects,
            inbox=self._inbox,
            env=context,
        )

    def _usage_source(self, conf: ConfFile) -> UsageSource:
        context = self._context
        return UsageSource(
            lambda: conf.config.metrics,
            self._usage,
            context,
        )

    def _dumper(self) -> Dumper:
        context, settings = self._context, self._settings
        return Dumper(
            self._bus,
            stream=self._streams.state.name,
            subjects=self._subjects,
            kinds=self._scheduler_state.kinds,
            settings=self._decision_settings,
            directory=settings.cache_dump_dir if settings.cache_dumper else "",
            limit_mib=settings.cache_dump_limit,
            env=context,
        )

    def _scheduler(
        self, *, conf: ConfFile, state: StateFeed, outcomes: OutcomeFeed, dumper: Dumper
    ) -> Scheduler:
        context, settings = self._context, self._settings
        publisher = PlanPublisher(
            self._bus,
            streams=self._streams,
            subjects=self._subjects,
            partitions=settings.partitions,
            env=context,
        )
        report = Report(
            metrics=context.metrics,
            events=GangEvents(self._event_publisher, context.spans),
            gate=context.readiness.gate("scheduler"),
            log=context.log,
        )
        return Scheduler(
            settings=settings,
            scheduler_state=self._scheduler_state,
            inputs=SchedulerInputs(
                inbox=self._inbox,
                state=state,
                outcomes=outcomes,
                past_usage=self._past_usage,
                conf=conf,
            ),
            outputs=SchedulerOutputs(
                publisher=publisher, explained=self._explained, report=report, dumper=dumper
            ),
            watchdog=self._watchdog,
            elector=self._on_bus.leader_elector(
                self._streams.command.name,
                guard="command",
                role=SINGLE_PODS if settings.single_pods else "",
                event_publisher=self._event_publisher,
            ),
            installation=self._installation,
            env=context,
        )
