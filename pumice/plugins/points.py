"""The table of extension points, `Points`: one row each, from which everything else follows.

A row says what a plugin contributes and with which types, Volcano's name and flag, how the engine
combines what several plugins answer, and what stands in for an answer of a plugin of another
distribution that fails. `Hooks`, to which plugins contribute, the engine's combined answers, the
guard of foreign plugins and the table of docs/plugins.md are all made of these rows.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from pumice.plugins import combining, contributions, guarding
from pumice.plugins.combining import Each, Key, OrderKey, Victims, VictimTasks
from pumice.plugins.guarding import guarded_results
from pumice.plugins.interface import (
    Cluster,
    EvictionContext,
    Job,
    NodeRows,
    PlacementTarget,
    Queue,
    SubJob,
    Task,
    TaskClass,
)
from pumice.plugins.point import Contributing, Plain, Point, Uses, uses
from pumice.plugins.turn_points import TurnPoints
from pumice.plugins.values import (
    ClaimUse,
    Condition,
    DeviceUse,
    FloatArray,
    IntArray,
    Invalid,
    Opinion,
    QueueFigures,
    Vote,
)

_C = TypeVar("_C")
_Order = Callable[[_C], Key]
_Chooses = Callable[[_C, Sequence[Task]], Sequence[Task] | None]
_Gradient = Callable[[_C, str, bool], list[list[str]]]
_FirstGradient = combining.Gradient
_ORDER: Final = "a number or a tuple of numbers; the smallest comes first"
_LAST: Final = "comes last"
_WHO_MAY_GO: Final = "which offered tasks may be evicted for a task; None: abstain"
_TRY: Final = "which HyperNodes to try, level by level"


class Points(TurnPoints):
    """All extension points."""

    # --- jobs --------------------------------------------------------------------------------

    job_valid: Plain[Callable[[Job], Invalid | None], Callable[[Job], Invalid | None]] = Plain(
        "JobValid",
        "",
        "why a job cannot be scheduled at all, or None",
        together=combining.first_objection,
        guarded=guarded_results(
            guarding.invalid, made=lambda guard, _: Invalid("PluginFailed", guard.blame)
        ),
        failing="it cannot",
    )
    job_enqueueable: Plain[Callable[[Job], Opinion], Callable[[Job], Opinion]] = Plain(
        "JobEnqueueable",
        "enableJobEnqueued",
        "an `Opinion` whether a pending job may enter its queue",
        together=combining.by_opinion,
        guarded=guarded_results(
            guarding.opinion, made=lambda guard, _: Opinion(Vote.REJECT, guard.blame)
        ),
        failing="no",
    )
    job_enqueued: Plain[Callable[[Job], None], Callable[[Job], None]] = Plain(
        "JobEnqueued",
        "enableJobEnqueued",
        "nothing; called when a job entered its queue",
        together=combining.notified,
        guarded=guarded_results(guarding.nothing),
        failing="",
    )
    job_order: Plain[_Order[Job], Callable[[Job], OrderKey]] = Plain(
        "JobOrder",
        "enableJobOrder",
        _ORDER,
        together=combining.in_turn(lambda job: (job.created, job.key)),
        guarded=guarded_results(guarding.key, guarding.LAST),
        failing=_LAST,
    )
    queue_order: Plain[_Order[Queue], Callable[[Queue], OrderKey]] = Plain(
        "QueueOrder",
        "enableQueueOrder",
        _ORDER,
        together=combining.in_turn(lambda queue: (queue.created, queue.name)),
        guarded=guarded_results(guarding.key, guarding.LAST),
        failing=_LAST,
    )
    task_order: Plain[_Order[Task], Callable[[Task], OrderKey]] = Plain(
        "TaskOrder",
        "enableTaskOrder",
        _ORDER,
        together=combining.in_turn(lambda task: (task.order(),)),
        guarded=guarded_results(guarding.key, guarding.LAST),
        failing=_LAST,
    )
    job_ready: Plain[Callable[[Job], int], Callable[[Job], int]] = Plain(
        "JobReady",
        "enableJobReady",
        "how many tasks a job lacks to start, at least; 0 = ready",
        together=combining.most,
        guarded=guarded_results(guarding.count, 1),
        failing="one",
    )
    job_pipelined: Plain[Callable[[Job], Vote], Callable[[Job], bool]] = Plain(
        "JobPipelined",
        "enableJobPipelined",
        "a `Vote` whether it may keep what it waits for on nodes",
        together=combining.by_vote,
        guarded=guarded_results(guarding.vote, Vote.REJECT),
        failing="no",
    )
    job_starving: Plain[Callable[[Job], bool], Callable[[Job], bool]] = Plain(
        "JobStarving",
        "enableJobStarving",
        "whether it may preempt or reclaim from others",
        together=combining.first_tier,
        guarded=guarded_results(guarding.flag, instead=False),
        failing="no",
    )

    # --- queues ------------------------------------------------------------------------------

    overused: Plain[Callable[[Queue], bool], Callable[[Queue], bool]] = Plain(
        "Overused",
        "enabledOverused",
        "whether a queue may not get more",
        together=combining.any_of,
        guarded=guarded_results(guarding.flag, instead=True),
        failing="it may not",
    )
    allocatable: Plain[
        Callable[[Queue, TaskClass, int], int], Callable[[Queue, TaskClass, int], int]
    ] = Plain(
        "Allocatable",
        "enabledAllocatable",
        "how many of so many tasks of a class a queue may get, one after another",
        together=combining.least_allowed,
        guarded=guarded_results(guarding.allowance, 0),
        failing="none",
    )
    preemptive: Plain[
        Callable[[Queue, Sequence[Task]], bool], Callable[[Queue, Sequence[Task]], bool]
    ] = Plain(
        "Preemptive",
        "enablePreemptive",
        "whether a queue may reclaim from others for these tasks",
        together=combining.all_of,
        guarded=guarded_results(guarding.flag, instead=False),
        failing="no",
    )
    queue_room: Plain[Callable[[Queue], FloatArray], Each[Callable[[Queue], FloatArray]]] = Plain(
        "",
        "",
        "an amounts array of what a queue may still get; explains why tasks wait, decides nothing",
        together=combining.each,
        guarded=guarded_results(guarding.any_amounts, made=lambda guard, _: guard.no_limit()),
        failing="no limit",
    )
    queue_figures: Plain[
        Callable[[], Iterable[QueueFigures]], Each[Callable[[], Iterable[QueueFigures]]]
    ] = Plain(
        "",
        "",
        "`QueueFigures` per queue at the end of a cycle, for metrics",
        together=combining.each,
        guarded=guarded_results(guarding.figures, ()),
        failing="none",
    )
    job_share: Plain[Callable[[Job], float], Callable[[Job], float | None]] = Plain(
        "",
        "",
        "a job's dominant share, for metrics",
        together=combining.last_result,
        guarded=guarded_results(guarding.number, 0.0),
        failing="0",
    )

    # --- victims -----------------------------------------------------------------------------

    preemptable = Point(
        "Preemptable",
        "enablePreemptable",
        _WHO_MAY_GO + "; all are of its queue; `among`: whether a job may take from another at all",
        takes=contributions.preempt_rule,
        together=combining.agreed_by_rules,
        guarded=guarding.guarded_victim_rule,
        failing="no task",
    )
    reclaimable = Point(
        "Reclaimable",
        "enableReclaimable",
        _WHO_MAY_GO + "; all are of other queues; `among`: whether a job may be taken from at all",
        takes=contributions.victim_rule,
        together=combining.agreed_by_rules,
        guarded=guarding.guarded_victim_rule,
        failing="no task",
    )
    evictable: Plain[_Chooses[EvictionContext], Victims[EvictionContext]] = Plain(
        "UnifiedEvictable",
        "",
        "which offered tasks may be evicted for a gang; None: abstain",
        together=combining.agreed_victims,
        guarded=guarded_results(guarding.victims, ()),
        failing="no task",
    )
    victim_queue_order: Plain[Callable[[Queue, Queue], Key], Callable[[Queue, Queue], OrderKey]] = (
        Plain(
            "VictimQueueOrder",
            "",
            "a key for (queue of a victim, queue of the preemptor); the smallest goes first",
            together=combining.pairs_in_turn,
            guarded=guarded_results(guarding.key, guarding.LAST),
            failing=_LAST,
        )
    )
    victim_tasks: Plain[Callable[[Sequence[Task]], Sequence[Task]], VictimTasks] = Plain(
        "VictimTasks",
        "enabledVictim",
        "which running tasks to evict although no task needs their place",
        together=combining.first_named,
        guarded=guarded_results(guarding.tasks, ()),
        failing="no task",
    )

    # --- nodes -------------------------------------------------------------------------------

    predicate = Point(
        "Predicate",
        "enablePredicate",
        "a code per row: 0 fits, n is the n-th of `reasons`",
        takes=contributions.predicate,
        together=combining.each,
        guarded=guarding.guarded_predicate,
        failing="refuses the rows",
    )
    cross_node_predicate = Point(
        "Predicate",
        "enablePredicate",
        "a `CrossNodeVerdict` for a class; None: not concerned",
        takes=contributions.cross_node_predicate,
        together=combining.each,
        guarded=guarding.guarded_cross_node_predicate,
        failing="refuses all nodes",
    )
    node_score: Plain[
        Callable[[TaskClass, NodeRows], FloatArray],
        Each[Callable[[TaskClass, NodeRows], FloatArray]],
    ] = Plain(
        "NodeOrder",
        "enableNodeOrder",
        "a score per row; all plugins' scores are added up",
        together=combining.each,
        guarded=guarded_results(guarding.scores_of_rows, made=guarding.zero_per_row),
        failing="0",
    )
    node_rank = Point(
        "NodeOrder",
        "enableNodeOrder",
        "a raw number per row, scaled to 0…100 over the candidates",
        takes=contributions.rank,
        together=combining.each,
        guarded=guarding.guarded_rank,
        failing="all alike, until a node changes",
    )
    cross_node_score = Point(
        "BatchNodeOrder",
        "enableNodeOrder",
        "a `CrossNodeScore` for a class: scores per node, given the candidates; None without one",
        takes=contributions.cross_node_score,
        together=combining.each,
        guarded=guarding.guarded_cross_node_score,
        failing="0",
    )

    # --- subgroups and HyperNodes ------------------------------------------------------------

    sub_job_ready: Plain[Callable[[SubJob], int], Callable[[SubJob], int]] = Plain(
        "SubJobReady",
        "enabledSubJobReady",
        "how many tasks a subgroup lacks",
        together=combining.most,
        guarded=guarded_results(guarding.count, 1),
        failing="one",
    )
    sub_job_pipelined: Plain[Callable[[SubJob], Vote], Callable[[SubJob], bool]] = Plain(
        "SubJobPipelined",
        "enabledSubJobPipelined",
        "a `Vote` whether a subgroup may keep what it waits for",
        together=combining.by_vote,
        guarded=guarded_results(guarding.vote, Vote.REJECT),
        failing="no",
    )
    sub_job_order: Plain[_Order[SubJob], Callable[[SubJob], OrderKey]] = Plain(
        "SubJobOrder",
        "enabledSubJobOrder",
        _ORDER,
        together=combining.in_turn(lambda sub: (sub.match_index, sub.id)),
        guarded=guarded_results(guarding.key, guarding.LAST),
        failing=_LAST,
    )
    hypernode_score: Plain[
        Callable[[SubJob, Sequence[str]], Sequence[float]],
        Callable[[SubJob, Sequence[str]], list[float]],
    ] = Plain(
        "HyperNodeOrder",
        "enabledHyperNodeOrder",
        "a score per HyperNode that could take a subgroup, in the order of their names",
        together=combining.added_up,
        guarded=guarded_results(guarding.numbers, made=lambda _, __, names: [0.0] * len(names)),
        failing="0",
    )
    job_gradient: Plain[_Gradient[Job], _FirstGradient[Job]] = Plain(
        "HyperNodeGradientForJob",
        "enabledHyperNodeGradient",
        _TRY + ", for a job; argument: whether evictions will make room",
        together=combining.first_gradient,
        guarded=guarded_results(guarding.levels, ()),
        failing="none",
    )
    sub_job_gradient: Plain[_Gradient[SubJob], _FirstGradient[SubJob]] = Plain(
        "HyperNodeGradientForSubJob",
        "enabledHyperNodeGradient",
        _TRY + ", for a subgroup",
        together=combining.first_gradient,
        guarded=guarded_results(guarding.levels, ()),
        failing="none",
    )
    batch_node_order: Plain[
        Callable[[PlacementTarget, TaskClass, IntArray], FloatArray | None],
        Callable[[PlacementTarget, TaskClass, IntArray], FloatArray | None],
    ] = Plain(
        "BatchNodeOrder",
        "enableNodeOrder",
        "a score per column by where the rest of a group is; None: all alike",
        together=combining.bias,
        guarded=guarded_results(guarding.scores_of_columns, None),
        failing="None",
    )

    # --- what goes along ---------------------------------------------------------------------

    trait = Point(
        "",
        "",
        "a text; pending tasks with different texts are in different classes",
        takes=contributions.trait,
        together=combining.all_traits,
        guarded=guarding.guarded_trait,
        failing="nothing",
    )
    binding: Plain[Callable[[Task], Mapping[str, str]], Callable[[Task], dict[str, str]]] = Plain(
        "",
        "",
        "annotations for a pod that is placed; they travel with the binding",
        together=combining.merged,
        guarded=guarded_results(guarding.texts, {}),
        failing="none",
    )
    claims: Uses[ClaimUse] = uses(
        "a `ClaimUse` for each claim of a placed pod that has no volume yet", guarding.claim_uses
    )
    devices: Uses[DeviceUse] = uses(
        "a `DeviceUse` for each device claim of a placed pod", guarding.device_uses
    )
    changed: Plain[Callable[[Job, TaskClass, int], None], Callable[[Job, TaskClass, int], None]] = (
        Plain(
            "EventHandler",
            "",
            "nothing; called with how many tasks of a class a job got placed; negative: taken back",
            together=combining.notified,
            guarded=guarded_results(guarding.nothing),
            failing="",
        )
    )
    moved: Plain[
        Callable[[Job, TaskClass, IntArray, IntArray], None],
        Callable[[Job, TaskClass, IntArray, IntArray], None],
    ] = Plain(
        "EventHandler",
        "",
        "nothing; called with the same with columns of nodes and a count for each",
        together=combining.notified,
        guarded=guarded_results(guarding.nothing),
        failing="",
    )
    closed: Plain[Callable[[], None], Callable[[], None]] = Plain(
        "OnSessionClose",
        "",
        "nothing; called when the cycle has been decided",
        together=combining.notified,
        guarded=guarded_results(guarding.nothing),
        failing="",
    )
    conditions: Plain[Callable[[Job], Condition | None], Callable[[Job], list[Condition]]] = Plain(
        "OnSessionClose",
        "",
        "a condition for a job's PodGroup, or None",
        together=combining.collected,
        guarded=guarded_results(guarding.condition, None),
        failing="None",
    )


AnyPoint = Point[Any, Any, Any]
POINTS: Final[Mapping[str, AnyPoint]] = {
    name: row
    for kind in Points.__mro__
    for name, row in vars(kind).items()
    if isinstance(row, Point)
}
"""The extension points by name."""


class Hooks(Points, Contributing):
    """Where a plugin adds its functions; flags of the configuration are applied by the engine.

    Each extension point is a method: `hooks.job_order(lambda job: -job.priority)`. Order functions
    return a key: what sorts first is served first; ties fall to the next plugin and at last to age
    and uid (SS09).
    """

    @abstractmethod
    def enabled(self, flag: str) -> bool:
        """Tell whether a flag of the plugin is set, spelled as in the configuration (K02)."""


class Plugin(Protocol):
    """A scheduling plugin; the engine makes it of its arguments: `PluginType(arguments)`."""

    name: str
    # `states`, if there is one, names the plugin's classes of `PolicyState`.

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add functions to `hooks`; called once per cycle, before the first action."""
