"""Plugins of other distributions inside a session: they answer, but cannot break it."""

from services.scheduler.foreign.plugin import Failure, ForeignPlugin

__all__ = ["Failure", "ForeignPlugin"]
