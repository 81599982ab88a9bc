"""Composition root of visibility: everything is built here and nowhere else."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pumice.events.tls import TlsClient
from services.scheduler.adapters.conf_file import ConfFile, node_labels
from services.scheduler.adapters.entry_points import PluginFailures, load_plugins
from services.scheduler.adapters.feed import Inbox, OutcomeFeed, StateFeed
from services.scheduler.engine.state.shards import Mode, Sharding
from services.scheduler.policy.catalog import PLUGINS, Plugins
from services.visibility.adapters.answering import Answering
from services.visibility.adapters.authentication import (
    Authentication,
    Source,
    in_cluster,
    in_flags,
)
from services.visibility.adapters.authorization import Authorization
from services.visibility.adapters.feeds import DecisionFeed, EventFeed, EventHistory
from services.visibility.adapters.forecasting import Forecasting
from services.visibility.adapters.keeping import Keeper
from services.visibility.adapters.live import Live
from services.visibility.adapters.registration import Address, Registration
from services.visibility.adapters.server import Changes, VisibilityServer
from services.visibility.adapters.sources import Sources
from services.visibility.adapters.watching import Watching
from services.visibility.answers.pending import Decisions
from services.visibility.answers.replica import Replica
from services.visibility.answers.survey import Policy
from services.visibility.api.users import RequestHeaders
from services.visibility.interface import Answers, LiveAnswers
from services.visibility.metrics import VisibilityMetrics
from services.visibility.settings import VisibilitySettings
from shared.bus.client import Dial
from shared.bus.nats import NatsBus
from shared.bus.pace import Pace
from shared.bus.service import BusParts, bus_of
from shared.bus.tenure import Tenure
from shared.contracts.messages import SCHEDULING
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from shared.kube.client import Kube
from shared.kube.service import kube_of
from shared.runtime.common import QUEUE_ADMISSION, is_feature_on
from shared.runtime.contain import Containment
from shared.runtime.service import Context
from shared.runtime.supervise import Part
from shared.serving.authorities import Authorities, InMemory, InSecret
from shared.serving.certification import Certification, Made
from shared.serving.connections import Limits
from shared.serving.identity import ServingCertificate
from shared.serving.server import HttpsServer

SERVICE: Final = "visibility"
_AUTHORITY: Final = "pumice-visibility-ca"
"""Name of our certificate authority."""
_SHOWN_S: Final = 60.0
"""How long a request that failed is shown."""


async def build(
    settings: VisibilitySettings, context: Context, dial: Dial = TlsClient
) -> Sequence[Part]:
    """Return the parts of visibility. Raises Rejected for settings that cannot work."""
    kube = await kube_of(settings, context)
    bus = bus_of(settings, context, dial)
    answers, live, following = _answers(settings, context, bus)
    return [*following, *await serving(settings, context, kube, answers, live)]


def _answers(
    settings: VisibilitySettings, context: Context, bus: NatsBus
) -> tuple[Answers, LiveAnswers, Sequence[Part]]:
    """Return the answers, those of the live page, and the parts that keep them up to date."""
    needed = streams(settings.cluster)
    on_bus = BusParts(context, bus, streams=needed, settings=settings)
    answers, keeper, following = following_parts(settings, context, bus, on_bus)
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
        ),
        on_bus.members(),
        *following,
    ]
    live = Live(keeper, clock=context.clock, ends=answers.end_of)
    parts.append(EventFeed(bus, needed.events, live, pace=keeper.pace, clock=context.clock))
    return answers, live, parts


def following_parts(
    settings: VisibilitySettings, context: Context, bus: NatsBus, on_bus: BusParts
) -> tuple[Answering, Keeper, Sequence[Part]]:
    """Return answers from a replica, its keeper, and what follows the bus for it."""
    clock, log, needed = context.clock, context.log, streams(settings.cluster)
    subjects = Subjects(cluster=settings.cluster)
    inbox = Inbox()
    plugins: Plugins = {
        **PLUGINS,
        **load_plugins(PLUGINS, note=PluginFailures(metrics=context.metrics, log=log)),
    }
    conf = ConfFile(
        settings.scheduler_conf, clock=clock, log=log, changed=inbox.changed, plugins=plugins
    )
    replica = Replica(
        scheduler_names=settings.scheduler_name,
        plugins=plugins,
        queue_gates=is_feature_on(settings.feature_gates, QUEUE_ADMISSION),
        csi_storage=settings.csi_storage,
        mindcluster=settings.mindcluster_npus,
        node_labels=node_labels(settings.node_selector),
    )
    pace = Pace(clock)
    state = StateFeed(
        on_bus.state(replica.kinds, pace=pace),
        inbox,
        tenure=Tenure(SCHEDULING, heed=False, clock=clock, log=log),
        gate=context.readiness.gate("state"),
        log=log,
    )
    outcomes = OutcomeFeed(
        bus,
        stream=needed.outcome.name,
        subjects=subjects,
        inbox=inbox,
        clock=clock,
        log=log,
        pace=pace,
    )
    keeper = Keeper(
        replica,
        inbox=inbox,
        state=state,
        pace=pace,
        executor=ThreadPoolExecutor(max_workers=1, thread_name_prefix="replica"),
        contain=Containment(context.set_aside, clock=clock, log=log),
        clock=clock,
        log=log,
    )
    sharding = Sharding(
        mode=Mode(settings.scheduler_sharding_mode), name=settings.scheduler_sharding_name
    )

    def policy() -> Policy:
        return Policy(config=conf.config, plugins=plugins, seed=settings.seed, sharding=sharding)

    decisions = Decisions(clock.monotonic)
    forecasts = Forecasting(
        keeper,
        policy,
        bus=bus,
        stream=needed.events.name,
        subjects=subjects,
        scheduler_name=settings.scheduler_name[0],
        contain=Containment(context.set_aside, clock=clock, log=log),
        clock=clock,
    )
    answers = Answering(
        keeper,
        policy,
        history=EventHistory(bus, stream=needed.events.name, subjects=subjects),
        decisions=decisions,
        starts=forecasts,
        clock=clock,
    )
    heard = DecisionFeed(bus, decisions, stream=needed.waiting, pace=pace, log=log)
    return answers, keeper, [conf, state, outcomes, keeper, heard, forecasts]


async def serving(
    settings: VisibilitySettings,
    context: Context,
    kube: Kube,
    answers: Answers,
    live: LiveAnswers,
) -> Sequence[Part]:
    """Return the parts of the aggregated API; it listens when they are returned."""
    clock, log = context.clock, context.log
    metrics = VisibilityMetrics(context.metrics)
    identity = ServingCertificate(metrics.expiry)
    https = HttpsServer(
        "api",
        context=lambda: identity.context,
        limits=Limits(connections=settings.connections_most),
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
    sources = Sources(answers, live, authorization, clock=clock)
    VisibilityServer(
        https,
        authentication=authentication,
        authorization=authorization,
        sources=sources,
        watching=Watching(sources, clock=clock, metrics=metrics),
        changes=Changes(live),
        contain=Containment(context.set_aside, clock=clock, log=log, lasts_s=_SHOWN_S),
        clock=clock,
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
    address = Address(
        namespace=settings.service_namespace,
        service=settings.service_name,
        port=port if outside else settings.service_port,
        external_name=settings.external_name,
    )
    registration = Registration(kube, address, clock=clock, log=log)
    life_s = settings.certificate_life
    return Certification(
        Made(_authorities(settings, context, kube), address.hosts, clock=clock, life_s=life_s),
        identity,
        register=registration.ensure if settings.register else None,
        unregister=registration.remove if settings.register and outside else None,
        close=kube.close,
        check_now=asyncio.Event(),
        gate=context.readiness.gate("certificate"),
        clock=clock,
        log=log,
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
