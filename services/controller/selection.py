"""Which controllers a process runs: `--controllers`, with Volcano's names (M03, M04)."""

from collections.abc import Sequence
from typing import Final

from shared.runtime.errors import Rejected

JOB: Final = "job-controller"
QUEUE: Final = "queue-controller"
POD_GROUP: Final = "pg-controller"
GARBAGE: Final = "gc-controller"
CRON_JOB: Final = "cronjob-controller"
JOB_FLOW: Final = "jobflow-controller"
JOB_TEMPLATE: Final = "jobtemplate-controller"
HYPERNODE: Final = "hyperNode-controller"

BUILT: Final = (
    JOB, QUEUE, POD_GROUP, GARBAGE, CRON_JOB, JOB_FLOW, JOB_TEMPLATE, HYPERNODE,
)  # fmt: skip
ABSENT: Final = (
    "sharding-controller",
    "colocation-config-controller",
)
"""Volcano's others: known, so that a command line moves over unedited, but not there."""
_ALL: Final = "*"
_FIELD: Final = "controllers"


def selected(words: Sequence[str]) -> frozenset[str]:
    """Return the names that `--controllers` asks for, absent ones among them when they are named.

    `*` stands for all that are there; `name` or `+name` adds one, `-name` takes one away, whatever
    the order. Raises Rejected for a name that Volcano does not know, or one both added and taken.
    """
    added: dict[str, None] = {}
    taken: dict[str, None] = {}
    for word in words:
        if word == _ALL:
            continue
        name = word[1:] if word[:1] in {"+", "-"} else word
        if name not in {*BUILT, *ABSENT}:
            known = ", ".join((*BUILT, *ABSENT))
            raise Rejected(f"--controllers: {name!r} is neither * nor one of {known}", field=_FIELD)
        (taken if word.startswith("-") else added)[name] = None
    if both := sorted(added.keys() & taken.keys()):
        raise Rejected(f"--controllers: {both[0]} is both added and taken away", field=_FIELD)
    everything = BUILT if _ALL in words else ()
    return frozenset((*everything, *added)) - taken.keys()
