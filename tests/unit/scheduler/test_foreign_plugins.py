"""Plugins of other distributions: loaded by entry point, checked, and unable to break a cycle."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import structlog

from pumice.plugins import CrossNodeVerdict, Opinion, Reason, Vote
from pumice.testing import Cluster, binds_of, evictions_of
from services.scheduler.adapters.entry_points import PluginFailures, load_plugins
from services.scheduler.config import BadConfig
from services.scheduler.decide import configure, decide
from services.scheduler.foreign import ForeignPlugin, PluginFailure
from services.scheduler.policy.catalog import PLUGINS
from shared.api import kinds
from shared.runtime.errors import Rejected
from shared.runtime.metrics import Metrics
from tests.support import distributions

EXAMPLE = "scheduler-plugin"
CONF = """\
actions: "enqueue, allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}]
- plugins: [{name: NAME, arguments: {ARGUMENTS}}]
"""


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the example installed."""
    return distributions.installed(EXAMPLE, tmp_path_factory)


def distribution(folder: Path, *, entry: str, code: str = "", name: str = "acme") -> Path:
    """Lay out a distribution with a scheduler plugin."""
    return distributions.laid_out(
        folder, group="pumice.plugins", entry=entry, module=f"{name}_plugin", code=code, name=name
    )


def configured(name: str, plugins, arguments: str = ""):
    text = CONF.replace("NAME", name).replace("ARGUMENTS", arguments)
    return configure(text, plugins={**PLUGINS, **plugins})


def test_the_example_of_thirty_lines_is_loaded_from_its_own_distribution(example, monkeypatch):
    """At most so many jobs of a queue run, settled ones counted; one that goes lets one in."""
    assert (
        len((distributions.EXAMPLES / EXAMPLE / "running_limit.py").read_text().splitlines()) <= 30
    )
    monkeypatch.syspath_prepend(str(example))
    plugins = {**PLUGINS, **load_plugins(PLUGINS, note=pytest.fail)}
    loaded = plugins["running-limit"]
    assert isinstance(loaded, ForeignPlugin)
    assert loaded.origin == "running-limit 1.0, entry point running-limit"
    world = Cluster().node("n").queue("other")
    world.config = configured("running-limit", plugins, "jobs: 2")
    asks = {"phase": "Pending", "minResources": {"cpu": "1"}}
    world.gang("settled", tasks=1, node="n", phase="Running", minResources={"cpu": "1"})
    world.group("done", phase="Completed").pod("done-0", "done", node="n", phase="Succeeded")
    for name, queue in (("a", "default"), ("b", "default"), ("c", "other")):
        world.group(name, queue=queue, **asks).pod(f"{name}-0", name, cpu="1")

    plan = world.step(plugins=plugins)
    assert "ns/settled" not in [job.key for job in world.cluster_state.jobs.active()]
    assert sorted(binds_of(plan)) == ["a-0", "c-0"]
    (why,) = (said.message for said in plan.explanations if said.job == "ns/b")
    assert why == "2 of 2 jobs of the queue are running"
    world.delete(kinds.PODGROUP, "ns/settled")
    assert sorted(binds_of(world.step(plugins=plugins))) == ["b-0"]


def test_a_configuration_with_arguments_that_the_example_refuses_is_refused(example, monkeypatch):
    monkeypatch.syspath_prepend(str(example))
    plugins = load_plugins(PLUGINS, note=pytest.fail)
    with pytest.raises(BadConfig, match="jobs: 'many' is no number of jobs"):
        configured("running-limit", plugins, "jobs: many")


@pytest.mark.parametrize(
    ("entry", "code", "says"),
    [
        ("zoned = acme_plugin:Zoned", "", "acme_plugin:Zoned cannot be imported: AttributeError"),
        ("zoned = acme_nowhere:Zoned", "", "ModuleNotFoundError: No module named 'acme_nowhere'"),
        ("zoned = acme_plugin:Zoned", "raise OSError('no licence')", "OSError: no licence"),
        ("zoned = acme_plugin:Zoned", "Zoned = 3", "a class with a method `contribute` is expect"),
        ("zoned = acme_plugin:Zoned", "class Zoned: ...", "a class with a method `contribute`"),
        (
            "zoned = acme_plugin:Zoned",
            "class Zoned:\n    name = 'other'\n    def contribute(self, h, c): ...\n",
            "has the name 'other', its entry point 'zoned'",
        ),
        ("gang = acme_plugin:Gang", "", "the name 'gang' is that of a built-in plugin"),
    ],
)
def test_what_cannot_be_loaded_is_told_with_distribution_and_entry_point(
    tmp_path, monkeypatch, entry, code, says
):
    """PL25."""
    monkeypatch.syspath_prepend(str(distribution(tmp_path, entry=entry, code=code)))
    monkeypatch.delitem(sys.modules, "acme_plugin", raising=False)
    with pytest.raises(Rejected) as caught:
        load_plugins(PLUGINS, note=pytest.fail)
    where = f"scheduler plugin of acme 2.0, entry point {entry.split()[0]}: "
    assert str(caught.value).startswith(where)
    assert says in str(caught.value)
    monkeypatch.delitem(sys.modules, "acme_plugin", raising=False)


def test_two_distributions_cannot_give_one_name(tmp_path, monkeypatch):
    code = "class Zoned:\n    name = 'zoned'\n    def contribute(self, h, c): ...\n"
    for name in ("acme", "rival"):
        entry = f"zoned = {name}_plugin:Zoned"
        distribution(tmp_path, entry=entry, code=code, name=name)
        monkeypatch.delitem(sys.modules, f"{name}_plugin", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Rejected, match=r"rival 2\.0, .*taken by acme 2\.0, entry point zoned"):
        load_plugins(PLUGINS, note=pytest.fail)


# --- failing at run time ---------------------------------------------------------------------


class Made:
    """A plugin whose contribution is a function."""

    name = "made"

    def __init__(self, contribute):
        self.contribute = contribute


def run(world: Cluster, contribute):
    """Decide with a foreign plugin; return the plan and what was noted of it."""
    noted: list[PluginFailure] = []
    plugin = ForeignPlugin(
        lambda _: Made(contribute), name="made", origin="acme 1.0", note=noted.append
    )
    config = configured("made", {"made": plugin})
    return decide(world.cluster_state, config, now=0.0, plugins={**PLUGINS, "made": plugin}), noted


def boom(*_):
    raise ZeroDivisionError("division by zero")


def two_jobs() -> Cluster:
    world = Cluster().node("n1").node("n2")
    return world.gang("g", tasks=2, cpu="1").gang("h", tasks=1, cpu="1")


def test_a_plugin_that_cannot_contribute_is_left_out_of_the_cycle():
    def contribute(hooks, _):
        hooks.predicate(boom, reasons=[Reason("never")])
        boom()

    plan, noted = run(two_jobs(), contribute)
    assert len(binds_of(plan)) == 3
    assert noted == [
        PluginFailure("made", "acme 1.0", "contribute", "ZeroDivisionError: division by zero")
    ]


REFUSING = {
    "predicate": lambda hooks: hooks.predicate(boom, reasons=[]),
    "cross_node_predicate": lambda hooks: hooks.cross_node_predicate(boom, reasons=[]),
    "cross_node_predicate later": lambda hooks: hooks.cross_node_predicate(
        lambda _: CrossNodeVerdict(boom), reasons=[]
    ),
    "job_valid": lambda hooks: hooks.job_valid(boom),
    "job_ready": lambda hooks: hooks.job_ready(boom),
    "overused": lambda hooks: hooks.overused(boom),
    "allocatable": lambda hooks: hooks.allocatable(boom),
}
INDIFFERENT = {
    "node_score": lambda hooks: hooks.node_score(boom),
    "node_rank": lambda hooks: hooks.node_rank(boom, weight=2),
    "cross_node_score": lambda hooks: hooks.cross_node_score(lambda _: boom, weight=1),
    "job_order": lambda hooks: hooks.job_order(boom),
    "queue_order": lambda hooks: hooks.queue_order(boom),
    "task_order": lambda hooks: hooks.task_order(boom),
    "trait": lambda hooks: hooks.trait("zone", boom),
    "binding": lambda hooks: hooks.binding(boom),
    "moved": lambda hooks: hooks.moved(boom),
    "changed": lambda hooks: hooks.changed(boom),
    "conditions": lambda hooks: hooks.conditions(boom),
}


@pytest.mark.parametrize("point", REFUSING)
def test_a_failing_answer_to_may_i_is_a_no(point):
    plan, noted = run(two_jobs(), lambda hooks, _: REFUSING[point](hooks))
    assert binds_of(plan) == {}
    assert {failure.point for failure in noted} == {point.partition(" ")[0]}


@pytest.mark.parametrize("point", INDIFFERENT)
def test_a_failing_answer_to_what_is_better_changes_nothing(point):
    plan, noted = run(two_jobs(), lambda hooks, _: INDIFFERENT[point](hooks))
    assert len(binds_of(plan)) == 3
    assert {failure.point for failure in noted} == {point}


def test_a_job_that_the_plugin_fails_on_does_not_keep_others_from_their_nodes():
    def contribute(hooks, _):
        hooks.job_enqueueable(lambda job: boom() if job.name == "g" else Opinion(Vote.PERMIT))

    world = Cluster().node("n1")
    for name in ("g", "h"):
        resources = {"minResources": {"cpu": "1"}}
        world.group(name, phase="Pending", **resources).pod(f"{name}-0", name, cpu="1")
    plan, noted = run(world, contribute)
    assert list(binds_of(plan)) == ["h-0"]
    assert [failure.point for failure in noted] == ["job_enqueueable"]
    assert "plugin made failed" in plan.explanations[0].message


BAD_ANSWERS = {
    "a code per node is missing": (
        lambda hooks: hooks.predicate(lambda *_: np.zeros(1, np.uint8), reasons=[]),
        "expected an array of shape (2,), got (1,)",
    ),
    "a code without reason": (
        lambda hooks: hooks.predicate(lambda _, rows: np.full(len(rows), 2), reasons=[Reason("")]),
        "expected codes from 0 to 1",
    ),
    "no number": (
        lambda hooks: hooks.node_score(lambda _, rows: np.full(len(rows), np.nan)),
        "expected finite scores",
    ),
    "a key that does not compare": (
        lambda hooks: hooks.job_order(lambda job: job),
        "expected a number or a tuple of numbers",
    ),
    "a number for a yes": (
        lambda hooks: hooks.overused(lambda _: 1),
        "expected True or False, got 1",
    ),
    "no function": (lambda hooks: hooks.job_order(3), "job_order: expected a function, got 3"),
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_an_answer_of_the_wrong_kind_is_the_plugins_error_and_not_the_engines(case):
    register, says = BAD_ANSWERS[case]
    _, noted = run(two_jobs(), lambda hooks, _: register(hooks))
    assert noted
    assert all(says in failure.error for failure in noted)


@pytest.mark.parametrize("fair", [True, False])
def test_victims_are_out_of_those_that_were_offered(fair):
    world = Cluster().node("n1", cpu="1")
    world.gang("low", tasks=1, min_member=0, node="n1", priority=1)
    world.gang("high", tasks=1, priority=9)
    stranger = world.cluster_state.task("uid-ns/high-0")
    noted: list[PluginFailure] = []

    def low(offered):
        return [task for task in offered if task.name == "low-0"]

    plugin = ForeignPlugin(
        lambda _: Made(
            lambda h, _: h.preemptable(lambda _, offered: low(offered) if fair else [stranger])
        ),
        name="made",
        origin="acme 1.0",
        note=noted.append,
    )
    plugins = {**PLUGINS, "made": plugin}
    listed = "{name: priority, enablePreemptable: false}, {name: made}"
    conf = f'actions: "preempt"\ntiers:\n- plugins: [{listed}]\n'
    plan = decide(world.cluster_state, configure(conf, plugins=plugins), now=0.0, plugins=plugins)
    assert evictions_of(plan) == ({"low-0": "high-0"} if fair else {})
    assert bool(noted) is not fair


def test_an_answer_that_failed_is_not_kept_between_cycles():
    broken = True

    def judge(_, rows):
        return boom() if broken else np.zeros(len(rows), np.uint8)

    noted: list[PluginFailure] = []
    plugin = ForeignPlugin(
        lambda _: Made(lambda hooks, _: hooks.predicate(judge, reasons=[], static=True)),
        name="made",
        origin="acme 1.0",
        note=noted.append,
    )
    plugins = {**PLUGINS, "made": plugin}
    config = configured("made", {"made": plugin})
    world = two_jobs()
    assert not binds_of(decide(world.cluster_state, config, now=0.0, plugins=plugins))
    broken = False
    assert len(binds_of(decide(world.cluster_state, config, now=1.0, plugins=plugins))) == 3


def test_arguments_that_a_plugin_refuses_are_refused_with_the_configuration():
    def refuse(_):
        raise ValueError("zones: 3 is no list")

    plugin = ForeignPlugin(refuse, name="made", origin="acme 1.0", note=pytest.fail)
    with pytest.raises(BadConfig, match=r"tiers\[1\], plugin made: .*no list \(from acme 1.0\)"):
        configured("made", {"made": plugin})


def test_failures_are_counted_and_each_kind_is_logged_once():
    metrics = Metrics()
    with structlog.testing.capture_logs() as said:
        note = PluginFailures(metrics=metrics, log=structlog.get_logger())
        for _ in range(3):
            note(PluginFailure("made", "acme 1.0", "node_score", "ValueError: no"))
    line = 'pumice_scheduler_plugin_failures_total{plugin="made",point="node_score"} 3.0'
    assert line in metrics.render().decode()
    assert [(entry["event"], entry["origin"]) for entry in said] == [("plugin_failed", "acme 1.0")]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "raise OSError('no licence')",
            "acme_plugin:Zoned cannot be imported: OSError: no licence",
        ),
        ("Zoned = 3", "acme_plugin:Zoned is no plugin: a class with a method `contribute`"),
    ],
)
def test_a_scheduler_with_a_plugin_that_cannot_be_loaded_ends_with_one_line(tmp_path, code, says):
    distribution(tmp_path, entry="zoned = acme_plugin:Zoned", code=code)
    command = [sys.executable, "-P", "-m", "services.scheduler", "--log-format=json"]
    environ = {"PATH": "", "HOME": "/nonexistent", "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=50, check=False
    )
    assert ended.returncode not in {0, None}
    assert "Traceback" not in ended.stderr
    line = ended.stderr.splitlines()[-1]
    assert line.startswith("error: scheduler plugin of acme 2.0, entry point zoned: ")
    assert says in line
