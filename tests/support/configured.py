"""Configurations of the scheduler that many cases of a test share: reading YAML takes long."""

from functools import cache

from services.scheduler.config import SchedulerConfig
from services.scheduler.decide import configure


@cache
def configured(text: str) -> SchedulerConfig:
    """Return what a configuration file says to the built-in plugins. Raises `BadConfig`."""
    return configure(text)
