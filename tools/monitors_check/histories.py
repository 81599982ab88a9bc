"""Histories of metrics in which an alert of k8s/monitoring fires, and near ones in which none does.

Series are in promtool's words, a sample each quarter of a minute: `2+4x20` begins with 2 and rises
by 4, twenty times. `make monitors-check` has promtool evaluate them with the rules.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

INTERVAL: Final = "15s"
LONG: Final = 500
"""Samples of two hours and a little more."""


class History(NamedTuple):
    """Metrics that services show, and what an alert says of them."""

    alert: str
    about: str
    series: Mapping[str, str]
    at: str
    fires: Mapping[str, str] = {}
    """Summary → `label=value` of each alert that fires, without its severity; empty: none does."""


def up(**others: str) -> dict[str, str]:
    """Return the targets of an installation that is well, but for those that are named."""
    services = ("admission", "binder", "cache", "controller", "declarer", "scheduler", "visibility")
    return {
        f'up{{job="pumice-{service}", pod="{service}-1"}}': others.get(service, f"1x{LONG}")
        for service in services
        if others.get(service) != ""
    }


def buckets(metric: str, labels: str = "", **rises: int) -> dict[str, str]:
    """Return buckets that rise by so much at each sample; `le_10=3` is that of 10 s."""
    return {
        f'{metric}{{{labels}le="{bound[3:].replace("inf", "+Inf")}"}}': f"0+{rise}x{LONG}"
        for bound, rise in rises.items()
    }


def turns(first: int, length: int, times: int) -> str:
    """Return a gauge that changes between 0 and 1 every `length` samples."""
    return " ".join(str((first + turn) % 2) for turn in range(times) for _ in range(length))


SCHEDULER = 'pumice_leader{job="pumice-scheduler", pod="scheduler-1"}'
SECOND_SCHEDULER = 'pumice_leader{job="pumice-scheduler", pod="scheduler-2"}'
CACHE = 'pumice_cache_leader{job="pumice-cache", pod="cache-1"}'
DECIDED = 'pumice_scheduler_decide_seconds_count{job="pumice-scheduler", pod="scheduler-1"}'
FACTS = 'pumice_cache_facts_waiting{job="pumice-cache", pod="cache-1"}'
PUBLISHED = (
    'pumice_cache_facts_published_total{job="pumice-cache", pod="cache-1", kind="pods", op="put"}'
)
STORES = 'pumice_bus_stores{job="pumice-binder", pod="binder-1"}'
BACKLOG = 'pumice_binder_backlog{pod="binder-%d", stream="%s", partition="%d"}'
ITEMS = 'pumice_binder_items_total{pod="binder-1", intent="bind", result="done"}'
STATUSES = 'pumice_binder_statuses_total{pod="binder-1", kind="podgroups", result="written"}'
INTENTS = "pumice_binder_intent_seconds_bucket"
ASIDE = 'pumice_quarantined_objects{job="pumice-controller", pod="controller-1", kind="jobs"}'
REVIEWS = 'pumice_admission_requests_total{hook="/jobs/validate", outcome="%s"}'
ANSWERS = "pumice_admission_seconds_bucket"
EXPIRY = 'pumice_admission_certificate_expiry_timestamp_seconds{pod="admission-1"}'
DAY_S = 86400

HISTORIES: Final = (
    History(
        *("PumiceServiceDown", "pods of a service do not answer", up(binder=f"0x{LONG}"), "3m"),
        {"No pod of pumice-binder can be scraped.": "job=pumice-binder"},
    ),
    History(
        *("PumiceServiceDown", "a service has no pods", up(declarer=""), "3m"),
        {"No pod of pumice-declarer can be scraped.": "job=pumice-declarer"},
    ),
    History(
        *("PumiceServiceDown", "one pod of two does not answer"),
        {**up(), 'up{job="pumice-binder", pod="binder-2"}': f"0x{LONG}"},
        "3m",
    ),
    History(
        *("PumiceNoLeader", "two schedulers and a cache, and none leads"),
        {SCHEDULER: f"0x{LONG}", SECOND_SCHEDULER: f"0x{LONG}", CACHE: f"0x{LONG}"},
        "2m",
        {
            "No pod of pumice-cache leads.": "job=pumice-cache",
            "No pod of pumice-scheduler leads.": "job=pumice-scheduler",
        },
    ),
    History(
        *("PumiceNoLeader", "one of two leads"),
        {SCHEDULER: f"0x{LONG}", SECOND_SCHEDULER: f"1x{LONG}"},
        "2m",
    ),
    History(
        *("PumiceLeadersChange", "two schedulers take turns"),
        {SCHEDULER: turns(0, 24, 5), SECOND_SCHEDULER: turns(1, 24, 5)},
        "29m",
        {
            "The leader of pumice-scheduler has changed more than three times in half an hour.": (
                "job=pumice-scheduler"
            )
        },
    ),
    History(
        *("PumiceLeadersChange", "a rolling update has two changes"),
        {SCHEDULER: turns(0, 40, 3), SECOND_SCHEDULER: turns(1, 40, 3)},
        "29m",
    ),
    History(
        *("PumiceNoCycles", "the leader stops"),
        {SCHEDULER: f"1x{LONG}", DECIDED: f"0+15x40 600x{LONG}"},
        "16m",
        {"The scheduler leads and decides nothing.": "job=pumice-scheduler"},
    ),
    History(
        *("PumiceNoCycles", "the leader runs a cycle now and then"),
        {SCHEDULER: f"1x{LONG}", DECIDED: f"0+1x{LONG}"},
        "16m",
    ),
    History(
        *("PumiceCacheDoesNotPublish", "facts wait"),
        {CACHE: f"1x{LONG}", FACTS: f"5x{LONG}", PUBLISHED: f"900x{LONG}"},
        "5m",
        {"The cache has 5 facts to publish and publishes none.": ("job=pumice-cache pod=cache-1")},
    ),
    History(
        *("PumiceCacheDoesNotPublish", "facts come as fast as they go"),
        {CACHE: f"1x{LONG}", FACTS: f"5x{LONG}", PUBLISHED: f"900+5x{LONG}"},
        "5m",
    ),
    History(
        *("PumiceCacheDoesNotPublish", "the pod led once"),
        {CACHE: f"0x{LONG}", FACTS: f"5x{LONG}", PUBLISHED: f"900x{LONG}"},
        "5m",
    ),
    History(
        *("PumiceNatsStoresNothing", "one service meets it", {STORES: f"0x{LONG}"}, "2m"),
        {"NATS answers and stores nothing.": ""},
    ),
    History(*("PumiceNatsStoresNothing", "all is stored", {STORES: f"1x{LONG}"}, "2m")),
    History(
        *("PumiceIntentsNotTaken", "intents wait, and none ends"),
        {BACKLOG % (1, "command", 0): f"3x{LONG}", ITEMS: f"70x{LONG}"},
        "11m",
        {"3 intents or statuses wait, and no binder has ended one for five minutes.": ""},
    ),
    History(
        *("PumiceIntentsNotTaken", "statuses wait, and none is written"),
        {BACKLOG % (1, "desired", 0): f"4x{LONG}", ITEMS: f"70+1x{LONG}", STATUSES: f"9x{LONG}"},
        "11m",
        {"4 intents or statuses wait, and no binder has ended one for five minutes.": ""},
    ),
    History(
        *("PumiceIntentsNotTaken", "intents end"),
        {BACKLOG % (1, "command", 0): f"3x{LONG}", ITEMS: f"70+1x{LONG}"},
        "11m",
    ),
    History(
        *("PumiceIntentsNotTaken", "one binder has an old figure, and statuses are written"),
        {
            BACKLOG % (1, "command", 0): f"3x{LONG}",
            BACKLOG % (2, "command", 0): f"0x{LONG}",
            BACKLOG % (2, "desired", 1): f"3x{LONG}",
            ITEMS: f"70x{LONG}",
            STATUSES: f"9+1x{LONG}",
        },
        "11m",
    ),
    History(
        *("PumiceIntentsWait", "intents take 10 to 30 s"),
        buckets(INTENTS, 'intent="bind", ', le_10=0, le_30=10, le_inf=10),
        "16m",
        {"One intent of ten (bind) takes longer than 28s.": "intent=bind"},
    ),
    History(
        *("PumiceIntentsWait", "intents take 5 to 10 s"),
        buckets(INTENTS, 'intent="bind", ', le_5=0, le_10=10, le_inf=10),
        "16m",
    ),
    History(
        *("PumiceObjectsQuarantined", "two jobs are quarantined", {ASIDE: f"2x{LONG}"}, "20m"),
        {"pumice-controller has set 2 keys of jobs aside.": "job=pumice-controller kind=jobs"},
    ),
    History(
        *("PumiceObjectsQuarantined", "two jobs are quarantined for ten minutes now"),
        {ASIDE: f"2x{LONG}"},
        "10m",
    ),
    History(
        *("PumiceAdmissionFails", "one review of ten fails"),
        {REVIEWS % "failed": f"0+1x{LONG}", REVIEWS % "allowed": f"0+9x{LONG}"},
        "11m",
        {"Admission cannot judge 10% of what it is asked.": ""},
    ),
    History(
        *("PumiceAdmissionFails", "one review of a hundred fails, and half are refused"),
        {
            REVIEWS % "failed": f"0+1x{LONG}",
            REVIEWS % "allowed": f"0+49x{LONG}",
            REVIEWS % "refused": f"0+50x{LONG}",
        },
        "11m",
    ),
    History(
        *("PumiceAdmissionSlow", "reviews take 1 to 5 s"),
        buckets(ANSWERS, le_1=0, le_5=10, le_inf=10),
        "16m",
        {"One review of a hundred takes longer than 4.96s.": ""},
    ),
    History(
        *("PumiceAdmissionSlow", "one review of a thousand takes 1 to 5 s"),
        buckets(ANSWERS, le_1=999, le_5=1000, le_inf=1000),
        "16m",
    ),
    History(
        *(
            "PumiceAdmissionCertificateExpires",
            "14 days are left",
            {EXPIRY: f"{14 * DAY_S}x{LONG}"},
        ),
        "2h",
        {"The certificate of admission expires in 13d 22h 0m 0s.": ""},
    ),
    History(
        *(
            "PumiceAdmissionCertificateExpires",
            "15 days are left",
            {EXPIRY: f"{15 * DAY_S}x{LONG}"},
        ),
        "2h",
    ),
)
