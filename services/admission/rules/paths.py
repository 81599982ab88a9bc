"""The paths of admission (W01), apart from their rules: the settings need no more."""

from typing import Final

PATHS: Final = (
    "/jobs/mutate",
    "/jobs/validate",
    "/podgroups/mutate",
    "/podgroups/validate",
    "/pods/mutate",
    "/pods/validate",
    "/queues/mutate",
    "/queues/validate",
    "/jobflows/validate",
    "/cronjobs/validate",
    "/hypernodes/validate",
)
