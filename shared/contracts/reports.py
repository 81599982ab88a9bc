"""Requests for usage reports and their replies: no stream keeps them."""

import msgspec

from shared.api.usage_reports import UsageReportSpec, UsageReportStatus
from shared.contracts.versions import CURRENT


class ReportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A query of visibility to accounting, after the user's rights were checked."""

    v: int = CURRENT
    spec: UsageReportSpec


class ReportReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reply of accounting: a result or an error."""

    v: int = CURRENT
    status: UsageReportStatus | None = None
    error: str = ""
    field: str = ""
    """Field of the query that is wrong; empty: the query may succeed later."""
