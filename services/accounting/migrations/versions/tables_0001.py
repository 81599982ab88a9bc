"""The tables of allocations, jobs, daily sums, positions and gaps."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0001"
down_revision: Final = None


def upgrade() -> None:
    """Create the tables."""
    _create_allocations()
    _create_jobs()
    op.create_table(
        "usage_days",
        sa.Column("day", sa.Integer, primary_key=True),
        sa.Column("queue", sa.String, primary_key=True),
        sa.Column("namespace", sa.String, primary_key=True),
        sa.Column("user", sa.String, primary_key=True),
        sa.Column("resource", sa.String, primary_key=True),
        sa.Column("amount_seconds", sa.Float, nullable=False),
    )
    op.create_table(
        "positions",
        sa.Column("stream", sa.String, primary_key=True),
        sa.Column("created", sa.String, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("time", sa.Float, nullable=False),
    )
    op.create_table(
        "gaps",
        sa.Column("stream", sa.String, primary_key=True),
        sa.Column("begin", sa.Float, primary_key=True),
        sa.Column("end", sa.Float, nullable=False),
        sa.Column("reason", sa.String, nullable=False),
    )


def _create_allocations() -> None:
    op.create_table(
        "allocations",
        sa.Column("pod_uid", sa.String, primary_key=True),
        sa.Column("pod", sa.String, nullable=False),
        sa.Column("namespace", sa.String, nullable=False),
        sa.Column("job", sa.String, nullable=False),
        sa.Column("job_uid", sa.String, nullable=False),
        sa.Column("queue", sa.String, nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("cpu_milli", sa.BigInteger, nullable=False),
        sa.Column("memory_bytes", sa.BigInteger, nullable=False),
        sa.Column("scalars", sa.JSON, nullable=False),
        sa.Column("started", sa.Float, nullable=False),
        sa.Column("ended", sa.Float, nullable=True),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("approximate", sa.Boolean, nullable=False),
    )
    op.create_index("allocations_ended", "allocations", ["ended"])
    op.create_index("allocations_job", "allocations", ["job_uid"])


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("uid", sa.String, primary_key=True),
        sa.Column("namespace", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("queue", sa.String, nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("submitted", sa.Float, nullable=False),
        sa.Column("admitted", sa.Float, nullable=True),
        sa.Column("started", sa.Float, nullable=True),
        sa.Column("ended", sa.Float, nullable=True),
        sa.Column("phase", sa.String, nullable=False),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("restarts", sa.Integer, nullable=False),
        sa.Column("min_member", sa.Integer, nullable=False),
        sa.Column("requested", sa.JSON, nullable=False),
        sa.Column("waits", sa.JSON, nullable=False),
        sa.Column("gate", sa.String, nullable=False),
        sa.Column("gate_since", sa.Float, nullable=True),
    )
    op.create_index("jobs_name", "jobs", ["namespace", "name"])
    op.create_index(
        "jobs_submitted",
        "jobs",
        ["submitted", "queue", "user", "namespace", "phase", "started", "ended", "restarts"],
    )
    op.create_index("jobs_queue", "jobs", ["queue", "submitted"])
    op.create_index("jobs_user", "jobs", ["user", "submitted"])
