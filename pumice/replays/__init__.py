"""Replays of recorded jobs through the scheduling engine in virtual time."""
