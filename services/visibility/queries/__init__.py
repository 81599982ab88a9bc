"""Queries about jobs, queues and imagined changes, on the scheduler's own cluster state. Pure.

Nothing here decides by itself: sessions are the scheduler's, under its configuration, and every
figure of a queue is that of the plugin that shares the cluster. What is imagined is folded in as
facts are, decided, and taken out again.
"""
