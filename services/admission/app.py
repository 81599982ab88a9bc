"""Composition root of admission: everything is built here and nowhere else."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from services.admission.adapters.files import ClientAuthority, Configuration
from services.admission.adapters.lookup import Lookup, OpenApi
from services.admission.adapters.registration import WebhookAddress, WebhookRegistration
from services.admission.adapters.server import WebhookServer
from services.admission.metrics import AdmissionMetrics
from services.admission.rules.catalogue import HOOKS, Hook
from services.admission.rules.review import Terms
from services.admission.settings import AdmissionSettings
from shared.kube.client import Kube
from shared.kube.config import kube_of
from shared.kube.installation import HoldersRegistration, InstallationLease
from shared.runtime.common import QUEUE_ADMISSION, is_feature_on
from shared.runtime.errors import Rejected
from shared.runtime.jobplugins import load_job_plugins
from shared.runtime.service import Context
from shared.runtime.supervise import Part
from shared.serving.authorities import Authorities, InMemory, InSecret
from shared.serving.certification import (
    CertificateFiles,
    CertificateSource,
    Certification,
    Close,
    IssuedCertificates,
)
from shared.serving.connections import ConnectionLimits
from shared.serving.identity import ServingCertificate
from shared.serving.server import HttpsServer

SERVICE: Final = "admission"
_AUTHORITY: Final = "pumice-admission-ca"
"""Name of our certificate authority."""
_SHOWN_S: Final = 60.0
"""How long a failed review is shown, because admission does not learn about later changes."""


async def build(settings: AdmissionSettings, context: Context) -> Sequence[Part]:
    """Return the parts of admission. Raises Rejected for settings that cannot work."""
    hooks = _hooks(settings)
    address = _address(settings)
    load_job_plugins()
    kube = await kube_of(settings, context)
    metrics = AdmissionMetrics(context.metrics)
    identity = ServingCertificate(metrics.expiry)
    clients = ClientAuthority(
        settings.client_ca_file, identity, clock=context.clock, log=context.log
    )
    check_now = asyncio.Event()
    configuration = Configuration(
        settings.admission_conf,
        _terms(settings),
        changed=check_now.set,
        clock=context.clock,
        log=context.log,
    )
    lease = InstallationLease(
        kube, installation=settings.installation, lease=settings.registration_lease
    )
    webhooks = WebhookRegistration(
        kube,
        name=settings.configuration_name,
        address=address,
        hooks=hooks,
        terms=lambda: configuration.terms,
        failure_policy=settings.failure_policy,
        timeout_s=round(settings.webhook_timeout),
        log=context.log,
    )
    registration = HoldersRegistration(webhooks, lease, context.log)
    origin = _origin(settings, context, kube, address)
    certification = _certification(
        settings, context, origin, identity, registration, close=kube.close, check_now=check_now
    )
    openapi = OpenApi(kube, clock=context.clock, log=context.log)
    https = HttpsServer(
        "webhooks",
        context=lambda: identity.context,
        limits=ConnectionLimits(
            connections=settings.connections_most, client_names=settings.client_names
        ),
        dropped=metrics.dropped,
        gate=context.readiness.gate("webhooks"),
        log=context.log,
    )
    WebhookServer(
        https,
        hooks,
        lookup=Lookup(kube, clock=context.clock, log=context.log),
        terms=lambda: configuration.terms,
        schemas=lambda: openapi.schemas,
        env=context.forgetting(_SHOWN_S),
        metrics=metrics,
    )
    await https.start(settings.bind_address, settings.port)
    return [https, configuration, certification, clients, openapi]


def _certification(
    settings: AdmissionSettings,
    context: Context,
    origin: CertificateSource,
    identity: ServingCertificate,
    registration: HoldersRegistration,
    *,
    close: Close,
    check_now: asyncio.Event,
) -> Certification:
    return Certification(
        origin,
        identity,
        register=registration.ensure if settings.register else None,
        unregister=registration.remove if settings.register and settings.unregister else None,
        close=close,
        check_now=check_now,
        gate=context.readiness.gate("certificate"),
        env=context,
    )


def _hooks(settings: AdmissionSettings) -> list[Hook]:
    paths = [path.strip() for path in settings.enabled_admission if path.strip()]
    unknown = [path for path in paths if path not in HOOKS]
    if unknown:
        raise Rejected(
            f"--enabled-admission: {', '.join(unknown)}: there are {', '.join(HOOKS)}",
            field="enabled-admission",
        )
    return [HOOKS[path] for path in dict.fromkeys(paths)]


def _terms(settings: AdmissionSettings) -> Terms:
    if not settings.scheduler_name:
        raise Rejected("--scheduler-name: name at least one", field="scheduler-name")
    return Terms(
        scheduler_names=settings.scheduler_name,
        max_queue_depth=settings.max_queue_depth,
        check_allocated_pods=settings.enable_queue_allocated_pods_check,
        refuse_unknown_fields=settings.refuse_unknown_fields,
        queue_gates=is_feature_on(settings.feature_gates, QUEUE_ADMISSION),
        protect_root=settings.enable_root_queue_protection,
        trusted_requesters=settings.trusted_requesters,
    )


def _address(settings: AdmissionSettings) -> WebhookAddress:
    url = settings.webhook_url
    if url:
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
            raise Rejected(
                f"--webhook-url: {url!r} is no address such as https://10.0.0.5:8443",
                field="webhook-url",
            )
    elif not (settings.webhook_namespace and settings.webhook_service_name):
        raise Rejected(
            "where does the API server find us? Give --webhook-url, or both --webhook-namespace"
            " and --webhook-service-name",
            field="webhook-url",
        )
    return WebhookAddress(
        url=url,
        namespace=settings.webhook_namespace,
        service=settings.webhook_service_name,
        port=settings.webhook_service_port,
    )


def _origin(
    settings: AdmissionSettings, context: Context, kube: Kube, address: WebhookAddress
) -> CertificateSource:
    clock, life_s = context.clock, settings.certificate_life
    cert, key = settings.tls_cert_file, settings.tls_private_key_file
    if bool(cert) != bool(key):
        raise Rejected(
            "--tls-cert-file and --tls-private-key-file go together", field="tls-cert-file"
        )
    if cert:
        ca = Path(settings.ca_cert_file) if settings.ca_cert_file else None
        return CertificateFiles(cert=Path(cert), key=Path(key), ca=ca, clock=clock)
    authorities: Authorities
    if settings.webhook_namespace:
        authorities = InSecret(
            kube,
            namespace=settings.webhook_namespace,
            name=settings.certificate_secret,
            signer=_AUTHORITY,
            clock=clock,
            life_s=life_s,
            log=context.log,
        )
    else:
        authorities = InMemory(clock=clock, life_s=life_s, signer=_AUTHORITY)
    return IssuedCertificates(authorities, address.hosts, clock=clock, life_s=life_s)
