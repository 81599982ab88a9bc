"""Reports reloads of the configuration: metric, `/quarantine`, and an event for an invalid one."""

from typing import Final

from pumice.events import ConfigurationRefused
from shared.bus.event_publisher import EventPublisher
from shared.runtime.env import Env

_KIND: Final = "configuration"
_STAGE: Final = "reload"


class ConfigurationReloads:
    """Notes of one process how the reloads of its file ended."""

    def __init__(self, env: Env, *, event_publisher: EventPublisher | None = None) -> None:
        """Make it; without `event_publisher` no event is published: one process of several does."""
        self._quarantined = env.quarantine.registry
        self._instance = env.instance
        self._clock = env.clock
        self._event_publisher = event_publisher
        self._refused = env.metrics.gauge(
            "pumice_configuration_refused",
            "1 while a changed configuration file is refused",
        )
        self._reloads = env.metrics.counter(
            "pumice_configuration_reloads", "Reloads of the configuration file", ["result"]
        )

    def note(self, file: str, reason: str) -> None:
        """Record that a reload was refused for a reason, or ("") that it is in force."""
        self._refused.set(1 if reason else 0)
        self._reloads.labels("refused" if reason else "applied").inc()
        if not reason:
            self._quarantined.drop(_KIND, file)
            return
        now = self._clock.now()
        line = " ".join(reason.split())
        self._quarantined.put(_KIND, file, stage=_STAGE, reason=line, now=now)
        if self._event_publisher is not None:
            event = ConfigurationRefused(
                service="scheduler", instance=self._instance, file=file, reason=line
            )
            self._event_publisher.publish(event, f"configuration/{self._instance}/{now}")
