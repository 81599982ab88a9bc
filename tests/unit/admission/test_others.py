"""PodGroups, CronJobs, JobFlows and HyperNodes before they are stored (W40, W41, W60)."""

import pytest

from tests.support.world import group
from tests.unit.admission.asking import Json, ask, paths, queue_named, sparse_job

QUEUE_OF = "scheduling.volcano.sh/queue-name"


def group_in_default(**spec) -> Json:
    return group(metadata={"namespace": "ns"}, **{"queue": "default", **spec})


def test_a_group_goes_into_the_queue_of_its_namespace_w40() -> None:
    patch = ask("/podgroups/mutate", group_in_default(), namespace={QUEUE_OF: "team"}).patch
    assert patch == ({"op": "add", "path": "/spec/queue", "value": "team"},)


@pytest.mark.parametrize(
    ("stated", "annotations"),
    [
        (group_in_default(), {}),
        (group(queue="own"), {QUEUE_OF: "team"}),
        ({"metadata": {}, "spec": {}}, {QUEUE_OF: "team"}),
    ],
)
def test_a_group_stays_in_a_queue_of_its_own_w40(stated: Json, annotations: Json) -> None:
    assert ask("/podgroups/mutate", stated, namespace=annotations).patch == ()


def test_a_group_needs_an_open_queue_and_one_name_for_its_tier_w41() -> None:
    tiers = {"highestTierAllowed": 1, "highestTierName": "rack"}
    bad = group(
        queue="shut",
        networkTopology=tiers,
        subGroupPolicy=[{"name": "a"}, {"name": "b", "networkTopology": tiers}],
    )
    verdict = ask("/podgroups/validate", bad, queues=[queue_named("shut", state="Closed")])
    assert paths(verdict) == [
        "spec.queue",
        "spec.networkTopology",
        "spec.subGroupPolicy[1].networkTopology",
    ]
    assert "in subGroupPolicy 'b': must not specify" in verdict.message
    assert ask("/podgroups/validate", group_in_default()).allowed


def cron(schedule: str = "*/5 * * * *", name: str = "c", **spec) -> Json:
    template = {"spec": sparse_job()["spec"]}
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"schedule": schedule, "jobTemplate": template, **spec},
    }


@pytest.mark.parametrize(
    "schedule", ["* * * * *", "0 3 1-15/2 jan,JUN mon-fri", "@daily", "@every 5m"]
)
def test_a_schedule_of_five_fields_or_a_name_for_one_is_taken_w60(schedule: str) -> None:
    assert ask("/cronjobs/validate", cron(schedule)).allowed


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("", "schedule is required, but got empty"),
        ("nonsense", "schedule is not a valid cron expression"),
        ("* * * *", "expected exactly 5 fields"),
        ("0 0 0 * * *", "expected exactly 5 fields"),
        ("61 * * * *", "minute: end of range (61) above maximum (59)"),
        ("* 25 * * *", "hour: end of range (25) above maximum (23)"),
        ("* * 0 * *", "day of month: beginning of range (0) below minimum (1)"),
        ("* * * 13 *", "month"),
        ("* * * * 7", "day of week: end of range (7) above maximum (6)"),
        ("*/0 * * * *", "step of range should be a positive number"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1)"),
        ("TZ=Europe/Berlin * * * * *", "schedule should not contain TZ or CRON_TZ"),
    ],
)
def test_any_other_schedule_is_refused_with_the_reason_w60(schedule: str, words: str) -> None:
    verdict = ask("/cronjobs/validate", cron(schedule))
    assert paths(verdict) == ["spec.schedule"]
    assert words in verdict.message


@pytest.mark.parametrize(
    ("zone", "words"),
    [
        ("", "timeZone must be nil or non-empty string, got empty string"),
        ("Local", "timeZone can't be Local"),
        ("Europe/./Berlin", "unknown timeZone"),
        ("../etc/passwd", "unknown timeZone"),
        ("Amerrica/New_York", "invalid timeZone"),
    ],
)
def test_a_time_zone_is_one_of_the_database_w60(zone: str, words: str) -> None:
    verdict = ask("/cronjobs/validate", cron(timeZone=zone))
    assert paths(verdict) == ["spec.timeZone"]
    assert words in verdict.message
    assert ask("/cronjobs/validate", cron(timeZone="Europe/Berlin")).allowed


def test_the_names_of_jobs_must_fit_behind_that_of_their_cronjob_w60() -> None:
    assert ask("/cronjobs/validate", cron(name="a" * 52)).allowed
    verdict = ask("/cronjobs/validate", cron(name="a" * 53))
    assert paths(verdict) == ["metadata.name"]
    assert "must be no more than 52 characters" in verdict.message


def flow(**needs: list[str]) -> Json:
    flows = [
        {"name": n, "dependsOn": {"targets": t}} if t else {"name": n} for n, t in needs.items()
    ]
    return {"metadata": {"name": "f", "namespace": "ns"}, "spec": {"flows": flows}}


@pytest.mark.parametrize(
    ("stated", "path", "words"),
    [
        (flow(a=["b"], b=["a"]), "spec.flows", "jobflow Flow is not DAG: a, b wait for each other"),
        (flow(a=["a"]), "spec.flows", "jobflow Flow is not DAG"),
        (flow(a=["x"]), "spec.flows[0].dependsOn.targets", "vertex is not defined: x"),
    ],
)
def test_the_jobs_of_a_flow_have_an_order_w60(stated: Json, path: str, words: str) -> None:
    verdict = ask("/jobflows/validate", stated)
    assert path in paths(verdict)
    assert words in verdict.message
    assert ask("/jobflows/validate", flow(a=[], b=["a"], c=["a", "b"])).allowed


def hypernode(*selectors: Json) -> Json:
    members = [{"type": "Node", "selector": selector} for selector in selectors]
    return {"metadata": {"name": "h"}, "spec": {"tier": 1, "members": members}}


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("a[b", "error parsing regexp: missing closing ]: `[b`"),
        ("a(b", "error parsing regexp: missing closing ): `a(b`"),
        ("*a", "error parsing regexp: missing argument to repetition operator: `*`"),
        ("a(?=b)", "invalid or unsupported Perl syntax: `(?=`"),
        ("", "required"),
        ("a{1001}", "error parsing regexp: invalid repeat count: `{1001}`"),
        ("a|" * 5000, "error parsing regexp: expression too large"),
    ],
)
def test_a_pattern_for_names_can_be_read_w60(pattern: str, words: str) -> None:
    verdict = ask("/hypernodes/validate", hypernode({"regexMatch": {"pattern": pattern}}))
    assert paths(verdict) == ["spec.members[0].selector.regexMatch.pattern"]
    assert words in verdict.message


def test_a_hypernode_has_members_that_are_selected_in_one_way_w60() -> None:
    assert (
        "member must have at least one member" in ask("/hypernodes/validate", hypernode()).message
    )
    two = {"exactMatch": {"name": "n"}, "regexMatch": {"pattern": "n"}}
    assert paths(ask("/hypernodes/validate", hypernode(two, {}))) == [
        "spec.members[0].selector",
        "spec.members[1].selector",
    ]
    good = hypernode({"exactMatch": {"name": "n"}}, {"labelMatch": {"matchLabels": {"a": "b"}}})
    assert ask("/hypernodes/validate", good).allowed
