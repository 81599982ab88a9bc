"""Composition root of visibility: everything is built here and nowhere else."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pumice.events.tls import TlsClient
from services.scheduler.adapters.conf_file import ConfFile, node_labels
from services.scheduler.adapters.conf_reloads import ConfigurationReloads
from services.scheduler.adapters.entry_points import PluginFailures, load_plugins
from services.scheduler.adapters.expressions import Expressions
from services.scheduler.adapters.feed import Inbox, OutcomeFeed, PastUsageFeed, StateFeed
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.engine.state.shards import Sharding, ShardMode
from services.scheduler.policy.catalog import PLUGINS, Plugins
from services.visibility.adapters.authentication import (
    Authentication,
    Source,
    in_cluster,
    in_flags,
)
from services.visibility.adapters.authorization import Authorization
from services.visibility.adapters.feeds import DecisionFeed, EventFeed, EventHistory, UsageFeed
from services.visibility.adapters.forecasting import Forecasting
from services.visibility.adapters.forked import ProcessLimits
from services.visibility.adapters.live import Live
from services.visibility.adapters.mirror_owner import MirrorOwner
from services.visibility.adapters.query_service import QueryService, UsageSources
from services.visibility.adapters.registration import VisibilityAddress, VisibilityRegistration
from services.visibility.adapters.report_client import ReportClient
from services.visibility.adapters.server import Changes, VisibilityServer
from services.visibility.adapters.sources import Sources
from services.visibility.adapters.watching import Watching
from services.visibility.api.users import RequestHeaders
from services.visibility.interface import LiveQueries, Queries
from services.visibility.metrics import VisibilityMetrics
from services.visibility.queries.cluster_mirror import ClusterMirror
from services.visibility.queries.pending import Decisions
from services.visibility.queries.survey import DecisionPolicy
from services.visibility.settings import VisibilitySettings
from shared.bus.client import Dial
from shared.bus.nats import NatsBus
from shared.bus.pace import Activity, Pace
from shared.bus.service import BusComponents, bus_of
from shared.contracts.messages import SCHEDULING
from shared.contracts.streams import MIB, streams
from shared.contracts.subjects import Subjects
from shared.election.installation import InstallationLeadership
from shared.kube.client import Kube
from shared.kube.config import kube_of
from shared.kube.installation import HoldersRegistration, InstallationLease
from shared.runtime.common import QUEUE_ADMISSION, is_feature_on
from shared.runtime.service import Context
from shared.runtime.supervise import Part
from shared.serving.authorities import Authorities, InMemory, InSecret
from shared.serving.certification import Certification, IssuedCertificates
from shared.serving.connections import ConnectionLimits
from shared.serving.identity import ServingCertificate
from shared.serving.server import HttpsServer

SERVICE: Final = "visibility"
_AUTHORITY: Final = "pumice-visibility-ca"
"""Name of our certificate authority."""
_EXPRESSIONS_WAIT_S: Final = 0.05
"""Longest wait of a query for device expressions, in seconds; a later query has the rest."""
_SHOWN_S: Final = 60.0
"""How long a request that failed is shown."""


async def build(
    settings: VisibilitySettings, context: Context, dial: Dial = TlsClient
) -> Sequence[Part]:
    """Return the parts of visibility. Raises Rejected for settings that cannot work."""
    kube = await kube_of(settings, context)
    bus = bus_of(settings, context, dial)
    queries, live, following = query_parts(settings, context, bus)
    return [*following, *await serving(settings, context, kube, queries, live)]


def query_parts(
    settings: VisibilitySettings, context: Context, bus: NatsBus
) -> tuple[Queries, LiveQueries, Sequence[Part]]:
    """Return the queries, those of the live page, and the parts that keep their data current."""
    needed = streams(settings.cluster)
    on_bus = BusComponents(context, bus, streams=needed, settings=settings)
    queries, owner, following = following_parts(settings, context, bus, on_bus)
    parts: list[Part] = [
        bus,
        on_bus.leases,
        on_bus.check(
            needed.state,
            needed.command,
            needed.outcome,
            needed.events,
            needed.lease,
            needed.waiting,
            needed.usage,
        ),
        on_bus.members(),
        *following,
    ]
    live = Live(owner, clock=context.clock, ends=queries.end_of)
    parts.append(EventFeed(bus, needed.events, live, pace=owner.pace, clock=context.clock))
    return queries, live, parts


def following_parts(
    settings: VisibilitySettings, context: Context, bus: NatsBus, on_bus: BusComponents
) -> tuple[QueryService, MirrorOwner, Sequence[Part]]:
    """Return queries on a mirror, its owner, and the parts that read the bus for it."""
    return _Following(settings, context, bus, on_bus).parts()


class _Following:
    """Makes the parts that follow the bus; lives only during `build`."""

    def __init__(
        self, settings: VisibilitySettings, context: Context, bus: NatsBus, on_bus: BusComponents
    ) -> None:
        self._settings = settings
        self._context = context
        self._bus = bus
        self._on_bus = on_bus
        self._streams = streams(settings.cluster)
        self._subjects = Subjects(cluster=settings.cluster)
        self._activity = Activity(context.clock, active_s=settings.idle_after)
        self._pace = Pace(context.clock, activity=self._activity)
        self._inbox = Inbox()
        note = PluginFailures(metrics=context.metrics, log=context.log)
        self._plugins: Plugins = {**PLUGINS, **load_plugins(PLUGINS, note=note)}
        reloads = ConfigurationReloads(context)
        self._conf = ConfFile(
            settings.scheduler_conf,
            clock=context.clock,
            log=context.log,
            changed=self._inbox.changed,
            plugins=self._plugins,
            note=reloads.note,
        )
        self._sharding = Sharding(
            mode=ShardMode(settings.scheduler_sharding_mode), name=settings.scheduler_sharding_name
        )
        self._expressions = Expressions(
            wait_s=_EXPRESSIONS_WAIT_S, changed=lambda: None, log=context.log
        )
        self._past_usage = PastUsageFeed(
            bus, stream=self._streams.usage, env=context, pace=self._pace
        )
        self._mirror = ClusterMirror(
            DecisionSettings(
                scheduler_names=settings.scheduler_name,
                queue_gates=is_feature_on(settings.feature_gates, QUEUE_ADMISSION),
                csi_storage=settings.csi_storage,
                mindcluster=settings.mindcluster_npus,
                node_labels=node_labels(settings.node_selector),
            ),
            plugins=self._plugins,
            evaluator=self._expressions.evaluator,
            past_usage=self._past_usage.latest,
        )

    def parts(self) -> tuple[QueryService, MirrorOwner, Sequence[Part]]:
        """Return the queries, the mirror's owner, and all parts to run."""
        clock, log, events = self._context.clock, self._context.log, self._streams.events
        state, outcomes = self._state(), self._outcomes()
        owner = MirrorOwner(
            self._mirror,
            inbox=self._inbox,
            state=state,
            pace=self._pace,
            executor=ThreadPoolExecutor(max_workers=1, thread_name_prefix="mirror"),
            env=self._context,
        )
        forecasts = Forecasting(
            owner,
            self._policy,
            bus=self._bus,
            stream=events.name,
            subjects=self._subjects,
            scheduler_name=self._settings.scheduler_name[0],
            activity=self._activity,
            env=self._context,
        )
        decisions = Decisions(clock.monotonic)
        reports = ReportClient(
            self._bus, subject=self._subjects.reports, published=self._past_usage.latest
        )
        queries = QueryService(
            owner,
            self._policy,
            history=EventHistory(self._bus, stream=events.name, subjects=self._subjects),
            usage=UsageSources(UsageFeed(self._bus, stream=events, clock=clock), reports),
            decisions=decisions,
            starts=forecasts,
            clock=clock,
            limits=ProcessLimits(
                cpu_s=int(self._settings.what_if_cpu),
                memory_bytes=self._settings.what_if_memory * MIB,
            ),
        )
        waits = self._streams.waiting
        decision_feed = DecisionFeed(self._bus, decisions, stream=waits, pace=self._pace, log=log)
        parts: list[Part] = [self._conf, state, outcomes, owner, decision_feed, forecasts]
        return queries, owner, [*parts, self._past_usage, self._expressions]

    def _policy(self) -> DecisionPolicy:
        return DecisionPolicy.of(
            self._conf.config,
            plugins=self._plugins,
            seed=self._settings.seed,
            sharding=self._sharding,
        )

    def _state(self) -> StateFeed:
        clock, log = self._context.clock, self._context.log
        return StateFeed(
            self._on_bus.state(self._mirror.kinds, pace=self._pace),
            self._inbox,
            installation=InstallationLeadership(SCHEDULING, required=False, clock=clock, log=log),
            gate=self._context.readiness.gate("state"),
            log=log,
        )

    def _outcomes(self) -> OutcomeFeed:
        return OutcomeFeed(
            self._bus,
            stream=self._streams.outcome.name,
            subjects=self._subjects,
            inbox=self._inbox,
            env=self._context,
            pace=self._pace,
        )


async def serving(
    settings: VisibilitySettings,
    context: Context,
    kube: Kube,
    queries: Queries,
    live: LiveQueries,
) -> Sequence[Part]:
    """Return the parts of the aggregated API; it listens when they are returned."""
    clock, log = context.clock, context.log
    metrics = VisibilityMetrics(context.metrics)
    identity = ServingCertificate(metrics.expiry)
    https = HttpsServer(
        "api",
        context=lambda: identity.context,
        limits=ConnectionLimits(connections=settings.connections_most),
        dropped=metrics.dropped,
        gate=context.readiness.gate("api"),
        log=log,
    )
    authentication = Authentication(
        _source(settings, kube),
        identity,
        gate=context.readiness.gate("authentication"),
        clock=clock,
        log=log,
    )
    authorization = Authorization(kube, clock=clock, metrics=metrics)
    sources = Sources(queries, live, authorization, clock=clock)
    VisibilityServer(
        https,
        authentication=authentication,
        authorization=authorization,
        sources=sources,
        watching=Watching(sources, clock=clock, metrics=metrics),
        changes=Changes(live),
        env=context.forgetting(_SHOWN_S),
        metrics=metrics,
    )
    port = await https.start(settings.bind_address, settings.port)
    certification = _certification(settings, context, kube, identity, port)
    return [https, authentication, certification]


def _certification(
    settings: VisibilitySettings,
    context: Context,
    kube: Kube,
    identity: ServingCertificate,
    port: int,
) -> Certification:
    clock, log, outside = context.clock, context.log, bool(settings.external_name)
    address = VisibilityAddress(
        namespace=settings.service_namespace,
        service=settings.service_name,
        port=port if outside else settings.service_port,
        external_name=settings.external_name,
    )
    lease = InstallationLease(
        kube, installation=settings.installation, lease=settings.registration_lease
    )
    registration = HoldersRegistration(
        VisibilityRegistration(kube, address, clock=clock, log=log), lease, log
    )
    life_s = settings.certificate_life
    return Certification(
        IssuedCertificates(
            _authorities(settings, context, kube), address.hosts, clock=clock, life_s=life_s
        ),
        identity,
        register=registration.ensure if settings.register else None,
        unregister=registration.remove if settings.register and outside else None,
        close=kube.close,
        check_now=asyncio.Event(),
        gate=context.readiness.gate("certificate"),
        env=context,
    )


def _authorities(settings: VisibilitySettings, context: Context, kube: Kube) -> Authorities:
    clock, life_s = context.clock, settings.certificate_life
    if settings.external_name or not settings.register:
        return InMemory(clock=clock, life_s=life_s, signer=_AUTHORITY)
    return InSecret(
        kube,
        namespace=settings.service_namespace,
        name=settings.certificate_secret,
        signer=_AUTHORITY,
        clock=clock,
        life_s=life_s,
        log=context.log,
    )


def _source(settings: VisibilitySettings, kube: Kube) -> Source:
    """Return where it stands by what the API server proves that it is the API server."""
    if not settings.requestheader_client_ca_file:
        return in_cluster(kube)
    headers = RequestHeaders(
        authorities="",
        allowed_names=settings.requestheader_allowed_names,
        name_headers=settings.requestheader_username_headers,
        uid_headers=settings.requestheader_uid_headers,
        group_headers=settings.requestheader_group_headers,
        extra_prefixes=settings.requestheader_extra_headers_prefix,
    )
    return in_flags(settings.requestheader_client_ca_file, headers)
