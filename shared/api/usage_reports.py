"""The kind UsageReport of `visibility.pumice.dev`: a query (`spec`) and its result (`status`).

It is created only, like a SubjectAccessReview, and stored nowhere. Accounting computes all reports
but `shares`. docs/usage-reports.md describes columns and rights.
"""

from typing import Annotated, Final

from msgspec import field

from shared.api.base import Timestamp, View, doc
from shared.api.meta import ObjectMeta

USAGE, JOBS, WAITS, EFFICIENCY = "usage", "jobs", "waits", "efficiency"
HISTORY, SHARES, BUDGETS = "history", "shares", "budgets"
COMMON_GROUPS: Final = ("queue", "user", "namespace", "day")
GROUPS: Final = {
    USAGE: COMMON_GROUPS,
    JOBS: (*COMMON_GROUPS, "phase"),
    WAITS: (*COMMON_GROUPS, "gate"),
    EFFICIENCY: COMMON_GROUPS,
}
"""Report with sums → what its rows can be grouped by."""
REPORTS: Final = (*GROUPS, HISTORY, SHARES, BUDGETS)
LIMIT_MAX: Final = 1000
"""Most rows of one page."""


class UsageReportSpec(View, frozen=True, kw_only=True):
    """Which report, of what, and of which time."""

    report: Annotated[str, doc("usage, jobs, waits, efficiency, history, shares or budgets.")]
    by: Annotated[
        tuple[str, ...],
        doc(
            "Groups of the sums: queue, user, namespace, day (UTC); phase for jobs, "
            "gate for waits. Default: queue."
        ),
    ] = ("queue",)
    since: Annotated[Timestamp | None, doc("Begin; default: 30 days before the end.")] = None
    until: Annotated[Timestamp | None, doc("End; default: now.")] = None
    mine: Annotated[bool, doc("Only what belongs to the requester, in place of `user`.")] = False
    user: Annotated[str, doc("Only what belongs to this user.")] = ""
    queue: Annotated[str, doc("Only this queue, without the queues below it.")] = ""
    namespace: Annotated[str, doc("Only this namespace.")] = ""
    job: Annotated[str, doc("Only jobs of this name, with their pods; for history.")] = ""
    limit: Annotated[int, doc("Most rows, 1 to 1000.")] = 500
    after: Annotated[str, doc("`status.next` of the page before this one.")] = ""


class ReportRow(View, frozen=True, kw_only=True):
    """The sums of one group."""

    group: Annotated[dict[str, str], doc("Column of `by` → its value; `resource` as well.")]
    values: Annotated[dict[str, float], doc("Column → number; units are in the names.")]


class RecordedPod(View, frozen=True, kw_only=True):
    """One pod of a recorded job, from its bind to its end."""

    name: Annotated[str, doc("Name of the pod.")]
    node: Annotated[str, doc("Name of its node.")] = ""
    started: Annotated[Timestamp | None, doc("When it was bound.")] = None
    ended: Annotated[Timestamp | None, doc("When it ended; empty while it runs.")] = None
    reason: Annotated[
        str, doc("Completed, Failed, Evicted, Deleted or Unobserved; empty while it runs.")
    ] = ""
    resources: Annotated[dict[str, float], doc("Resource → amount.")] = field(default_factory=dict)


class RecordedJob(View, frozen=True, kw_only=True):
    """One job as accounting recorded it, also after it was deleted."""

    namespace: Annotated[str, doc("Namespace of the job.")]
    name: Annotated[str, doc("Name of the job.")]
    uid: Annotated[str, doc("UID of the Job, or of a PodGroup without one.")]
    kind: Annotated[str, doc("Job or PodGroup.")] = "Job"
    queue: Annotated[str, doc("Queue of the job.")] = ""
    user: Annotated[str, doc("User who created it, as admission recorded it.")] = ""
    phase: Annotated[str, doc("Last phase that was recorded.")] = ""
    reason: Annotated[str, doc("Reason of the phase.")] = ""
    submitted: Annotated[Timestamp, doc("When it was created.")]
    admitted: Annotated[Timestamp | None, doc("When its queue admitted it.")] = None
    started: Annotated[Timestamp | None, doc("When its first pod was bound.")] = None
    ended: Annotated[Timestamp | None, doc("When it ended.")] = None
    restarts: Annotated[int, doc("How often it was restarted.")] = 0
    min_member: Annotated[int, doc("Fewest pods that it needs.")] = 0
    requested: Annotated[dict[str, float], doc("Resource → amount of that minimum.")] = field(
        default_factory=dict
    )
    waits: Annotated[dict[str, float], doc("Gate → seconds.")] = field(default_factory=dict)
    pod_count: Annotated[int, doc("Pods that were bound.")] = 0
    used: Annotated[dict[str, float], doc("Resource → amount times hours, until now.")] = field(
        default_factory=dict
    )
    pods: Annotated[tuple[RecordedPod, ...], doc("Its pods, if the query names a job.")] = ()


class ShareRow(View, frozen=True, kw_only=True):
    """The share of a queue, or of a user in it, and the decayed usage; columns of `sshare`."""

    queue: Annotated[str, doc("Name of the queue.")]
    user: Annotated[str, doc("Name of the user; empty for the queue itself.")] = ""
    depth: Annotated[int, doc("Queues above it.")] = 0
    raw_shares: Annotated[float, doc("Weight of the queue, or share of the user in it.")] = 1.0
    norm_shares: Annotated[float, doc("Part of the shares of its siblings, 0 to 1.")] = 0.0
    raw_usage: Annotated[float, doc("Decayed usage in weighted amount times seconds.")] = 0.0
    norm_usage: Annotated[float, doc("Part of the usage of the whole cluster, 0 to 1.")] = 0.0
    effective_usage: Annotated[float, doc("Part of the usage of its siblings, 0 to 1.")] = 0.0
    fair_share: Annotated[float, doc("Rank among all users, 1 for the first, 0 to 1.")] = 0.0


class BudgetRow(View, frozen=True, kw_only=True):
    """One resource of a budget in the present period, for whom it holds."""

    budget: Annotated[str, doc("Name of the budget.")]
    queue: Annotated[str, doc("Queue whose subtree counts.")]
    user: Annotated[str, doc("The user that it holds for by itself; empty: all.")] = ""
    namespace: Annotated[str, doc("The namespace that it holds for by itself; empty: all.")] = ""
    resource: Annotated[str, doc("Name of the resource.")]
    amount_hours: Annotated[float, doc("The budget, in amount times hours.")]
    used_hours: Annotated[float, doc("What is used of it.")] = 0.0
    begin: Annotated[Timestamp, doc("Begin of the period.")]
    end: Annotated[Timestamp, doc("End of the period.")]
    used_up: Annotated[
        Timestamp | None,
        doc("When it is used up at the present rate; empty: not in the period."),
    ] = None


class RecordGap(View, frozen=True, kw_only=True):
    """A time without events: what is reported of it is approximate."""

    begin: Annotated[Timestamp, doc("Begin of the gap.")]
    end: Annotated[Timestamp, doc("End of the gap.")]
    reason: Annotated[str, doc("Why events are missing.")] = ""


class UsageReportStatus(View, frozen=True, kw_only=True):
    """The result: rows of sums, jobs or shares, by the report."""

    since: Annotated[Timestamp | None, doc("Begin of the reported time.")] = None
    until: Annotated[Timestamp | None, doc("End of the reported time.")] = None
    user: Annotated[str, doc("The only user that it is about; empty: all.")] = ""
    rows: Annotated[tuple[ReportRow, ...], doc("Sums by group, sorted by group.")] = ()
    jobs: Annotated[tuple[RecordedJob, ...], doc("Jobs, the last submitted first.")] = ()
    shares: Annotated[tuple[ShareRow, ...], doc("Queues, each behind its parent.")] = ()
    budgets: Annotated[tuple[BudgetRow, ...], doc("Budgets with usage, by their names.")] = ()
    gaps: Annotated[tuple[RecordGap, ...], doc("Gaps of the records in this time.")] = ()
    next: Annotated[str, doc("`spec.after` of the next page; empty: there is none.")] = ""


class UsageReport(View, frozen=True, kw_only=True):
    """A report on recorded usage, jobs or shares; create only, it is not stored."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Annotated[UsageReportSpec, doc("The query.")]
    status: Annotated[UsageReportStatus | None, doc("The result.")] = None
