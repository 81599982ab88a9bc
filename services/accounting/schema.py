"""The tables of accounting's database. Alembic's migrations create them, never this module.

Times are Unix seconds. CPU counts in thousandths, memory in bytes, every other resource in
thousandths, as in `shared.model.resources`.
"""

from typing import Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
)

METADATA: Final = MetaData()

ALLOCATIONS: Final = Table(
    "allocations",
    METADATA,
    Column("pod_uid", String, primary_key=True),
    Column("pod", String, nullable=False, comment="name of the pod"),
    Column("namespace", String, nullable=False),
    Column("job", String, nullable=False, comment="name of its Job or PodGroup, or empty"),
    Column("job_uid", String, nullable=False, comment="uid in `jobs`, or empty"),
    Column("queue", String, nullable=False),
    Column("user", String, nullable=False, comment="annotation pumice.dev/user, or empty"),
    Column("node", String, nullable=False),
    Column("cpu_milli", BigInteger, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("scalars", JSON, nullable=False, comment="other resources: name to thousandths"),
    Column("started", Float, nullable=False, comment="when the pod was bound"),
    Column("ended", Float, nullable=True, comment="null: the pod still uses its resources"),
    Column("reason", String, nullable=False, comment="why it ended: `EndReason`, or empty"),
    Column("approximate", Boolean, nullable=False, comment="a time or amount is an estimate"),
    Index("allocations_ended", "ended"),
    Index("allocations_job", "job_uid"),
)
"""One row per pod that was bound to a node."""

JOBS: Final = Table(
    "jobs",
    METADATA,
    Column("uid", String, primary_key=True, comment="of the Job, else of the PodGroup"),
    Column("namespace", String, nullable=False),
    Column("name", String, nullable=False),
    Column("kind", String, nullable=False, comment="Job or PodGroup"),
    Column("queue", String, nullable=False),
    Column("user", String, nullable=False),
    Column("submitted", Float, nullable=False),
    Column("admitted", Float, nullable=True, comment="when its queue admitted it"),
    Column("started", Float, nullable=True, comment="when its first pod was bound"),
    Column("ended", Float, nullable=True),
    Column("phase", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("restarts", Integer, nullable=False),
    Column("min_member", Integer, nullable=False),
    Column("requested", JSON, nullable=False, comment="minimum of the gang: name to amount"),
    Column("waits", JSON, nullable=False, comment="gate to seconds"),
    Column("gate", String, nullable=False, comment="gate that it waits at now, or empty"),
    Column("gate_since", Float, nullable=True),
    Index("jobs_name", "namespace", "name"),
    # Reports that count jobs read this index alone.
    Index(
        "jobs_submitted",
        *("submitted", "queue", "user", "namespace", "phase", "started", "ended", "restarts"),
    ),
    Index("jobs_queue", "queue", "submitted"),
    Index("jobs_user", "user", "submitted"),
)
"""One row per Job, and per PodGroup that no Job owns."""

USAGE_DAYS: Final = Table(
    "usage_days",
    METADATA,
    Column("day", Integer, primary_key=True, comment="days since 1970-01-01, UTC"),
    Column("queue", String, primary_key=True),
    Column("namespace", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("resource", String, primary_key=True, comment="cpu, memory, pods or another name"),
    Column("amount_seconds", Float, nullable=False, comment="amount times seconds"),
)
"""Sums of the allocations that ended, by day; `resource` pods counts 1,000 per pod."""

POSITIONS: Final = Table(
    "positions",
    METADATA,
    Column("stream", String, primary_key=True),
    Column("created", String, nullable=False, comment="epoch of the stream (ADR 2)"),
    Column("sequence", BigInteger, nullable=False, comment="last message that the rows contain"),
    Column("time", Float, nullable=False, comment="when the server stored it"),
)
"""How far a stream was read: written in the transaction that writes the rows."""

GAPS: Final = Table(
    "gaps",
    METADATA,
    Column("stream", String, primary_key=True),
    Column("begin", Float, primary_key=True),
    Column("end", Float, nullable=False),
    Column("reason", String, nullable=False),
)
"""Times of which events are missing: rows of these times are approximate."""
