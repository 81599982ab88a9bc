"""Queues before they are stored or deleted (W50 to W54)."""

import pytest

from tests.unit.admission.asking import Json, ask, new_queue, paths, queue_named

PATH, WEIGHTS = "volcano.sh/hierarchy", "volcano.sh/hierarchy-weights"


def test_a_bare_queue_gets_its_defaults_w50() -> None:
    verdict = ask("/queues/mutate", {"metadata": {"name": "q"}, "spec": {}})
    assert [(o["path"], o["value"]) for o in verdict.patch] == [
        ("/spec/reclaimable", True),
        ("/spec/weight", 1),
    ]


def test_a_queue_without_a_spec_gets_one_w50() -> None:
    (only,) = ask("/queues/mutate", {"metadata": {"name": "q"}}).patch
    assert only == {"op": "add", "path": "/spec", "value": {"reclaimable": True, "weight": 1}}


@pytest.mark.parametrize("field", ["capability", "deserved"])
def test_a_resource_that_kubernetes_does_not_have_is_warned_of(field: str) -> None:
    """Reported beside volcano#4867: `mem` for `memory`, which nobody noticed."""
    verdict = ask("/queues/validate", new_queue(**{field: {"cpu": "20", "mem": "400Gi"}}))
    assert verdict.allowed
    assert list(verdict.hints) == [
        f'spec.{field}: Kubernetes has no resource "mem"; memory is one: it bounds nothing'
    ]


def test_resources_of_kubernetes_and_of_devices_are_not_warned_of() -> None:
    known = {"cpu": "1", "memory": "1Gi", "pods": "9", "hugepages-2Mi": "2Mi", "a.com/gpu": "1"}
    assert not ask("/queues/validate", new_queue(capability=known)).hints


@pytest.mark.parametrize("order", ["best-effort", "strict", "backfill"])
def test_a_queue_may_state_each_order_that_there_is(order: str) -> None:
    assert ask("/queues/validate", new_queue(annotations={"pumice.dev/order": order})).allowed


def test_a_path_begins_at_the_root_w50() -> None:
    stated = new_queue(annotations={PATH: "root/a", WEIGHTS: "1/2"}, reclaimable=False)
    assert ask("/queues/mutate", stated).patch == ()


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (
            new_queue(capability={"cpu": "-1"}),
            (
                'requestBody.spec.capability.cpu: Invalid value: "-1": must be greater than or'
                " equal to 0"
            ),
        ),
        (
            new_queue(capability={"pods": "1500m"}),
            'requestBody.spec.capability.pods: Invalid value: "1500m": must be an integer',
        ),
        (
            new_queue(deserved={"cpu": "2000m"}, capability={"cpu": 1}),
            (
                'requestBody.spec.deserved.cpu: Invalid value: "2": deserved[cpu]=2 must be <='
                " capability[cpu]=1"
            ),
        ),
        (
            new_queue(guarantee={"resource": {"memory": "1Gi"}}),
            (
                'requestBody.spec.deserved.memory: Invalid value: "<nil>": deserved[memory] must be'
                " >= guarantee[memory]=1Gi"
            ),
        ),
        (
            new_queue(annotations={"pumice.dev/order": "fifo"}),
            (
                'requestBody.metadata.annotations[pumice.dev/order]: Invalid value: "fifo": it is'
                " none of best-effort, strict, backfill"
            ),
        ),
        (
            new_queue(annotations={PATH: "root/a", WEIGHTS: "1"}),
            (
                'requestBody.metadata.annotations: Invalid value: "root/a": volcano.sh/hierarchy'
                " must have the same length with volcano.sh/hierarchy-weights"
            ),
        ),
        (
            new_queue(annotations={PATH: "root/a", WEIGHTS: "1/-2"}),
            (
                'requestBody.metadata.annotations: Invalid value: "1/-2": -2 in the 1/-2 must be'
                " larger than 0"
            ),
        ),
        (
            new_queue(annotations={PATH: "root/node1", WEIGHTS: "1/2"}),
            (
                'requestBody.metadata.annotations: Invalid value: "root/node1": root/node1 is not'
                " allowed to be in the sub path of root/node1/node2 of queue taken"
            ),
        ),
    ],
)
def test_a_queue_that_contradicts_itself_is_refused_w51_w52(stated: Json, message: str) -> None:
    taken = queue_named("taken", annotations={PATH: "root/node1/node2", WEIGHTS: "1/2/3"})
    verdict = ask("/queues/validate", stated, queues=[taken])
    assert verdict.message == message


def test_a_text_that_is_no_quantity_is_refused_with_its_field_w51() -> None:
    verdict = ask("/queues/validate", new_queue(capability={"cpu": "lots"}))
    assert paths(verdict) == ["requestBody.spec.capability.cpu"]
    assert "'lots' is no quantity" in verdict.message


def test_several_faults_of_a_queue_come_in_brackets_w51() -> None:
    verdict = ask("/queues/validate", new_queue(capability={"cpu": "-1", "memory": "-1"}))
    assert verdict.message.startswith("[requestBody.spec.capability.cpu")
    assert verdict.message.endswith("]")


TREE = [
    queue_named("root"),
    queue_named("a", parent="root", capability={"cpu": 10}, deserved={"cpu": 8},
                guarantee={"resource": {"cpu": 6}}),
    queue_named("b", parent="a", capability={"cpu": 8}, guarantee={"resource": {"cpu": 4}},
                deserved={"cpu": 4}),
    queue_named("c", parent="b"),
    queue_named("d", parent="c"),
    queue_named("full", parent="root"),
]  # fmt: skip
TREE[-1]["status"]["allocated"] = {"pods": "3"}


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (new_queue(parent="q"), "queue q cannot use itself as parent"),
        (
            new_queue(parent="nope"),
            (
                "failed to get parent queue nope of queue q: queue.scheduling.volcano.sh"
                ' "nope" not found'
            ),
        ),
        (new_queue(parent="d"), "queue q exceeds the maximum allowed depth of 4"),
        (
            new_queue(parent="full"),
            "queue full cannot be the parent queue of queue q because it has allocated Pods: 3",
        ),
        (
            new_queue(parent="c", capability={"cpu": "8500m"}),
            "queue q capability[cpu]=8500m exceeds its ancestor's capability=8",
        ),
        (
            new_queue(parent="a", deserved={"cpu": 3}, guarantee={"resource": {"cpu": 3}}),
            (
                "parent queue a validation failed: sum of children's guarantee (cpu 7000.00, memory"
                " 0.00) exceeds parent's guarantee limit (cpu 6000.00, memory 0.00)"
            ),
        ),
        (
            new_queue(parent="a", deserved={"cpu": 5}),
            (
                "parent queue a validation failed: sum of children's deserved (cpu 9000.00, memory"
                " 0.00) exceeds parent's deserved limit (cpu 8000.00, memory 0.00)"
            ),
        ),
    ],
)
def test_a_queue_that_does_not_fit_into_the_tree_is_refused_w53(stated: Json, message: str) -> None:
    assert ask("/queues/validate", stated, queues=TREE, max_queue_depth=4).message == message


def change(name: str, **spec) -> str:
    before = next(q for q in TREE if q["metadata"]["name"] == name)
    now = {**before, "spec": {**before["spec"], **spec}}
    return ask("/queues/validate", now, old=before, operation="UPDATE", queues=TREE).message


def test_a_change_is_checked_against_what_is_below_w53() -> None:
    assert change("a", capability={"cpu": 8}) == ""
    assert change("a", deserved={"cpu": 6}, capability={"cpu": 7}) == (
        "queue a capability[cpu]=7 is smaller than its descendants' max capability=8"
    )


def test_a_change_of_the_weight_is_not_held_up_by_the_tree_w53() -> None:
    broken = [*TREE, queue_named("odd", parent="a", capability={"cpu": 99})]
    before = broken[-1]
    now = {**before, "spec": {**before["spec"], "weight": 7}}
    assert ask("/queues/validate", now, old=before, operation="UPDATE", queues=broken).allowed


def test_a_circle_of_parents_is_too_deep_w53() -> None:
    circle = [queue_named("x", parent="y"), queue_named("y", parent="x")]
    verdict = ask("/queues/validate", new_queue(parent="x"), queues=circle)
    assert verdict.message == "queue q exceeds the maximum allowed depth of 5"


def test_the_resources_of_the_root_stay_w54() -> None:
    said = "root queue's resource attributes (capability, deserved, guarantee) cannot be modified"
    assert change("root", capability={"cpu": 1}) == said
    assert change("root", weight=3) == ""
    before = TREE[0]
    now = {**before, "spec": {"capability": {"cpu": 1}}}
    unprotected = ask(
        "/queues/validate", now, old=before, operation="UPDATE", queues=TREE, protect_root=False
    )
    assert unprotected.allowed


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("default", "`default` queue can not be deleted"),
        ("root", "`root` queue can not be deleted"),
        ("a", "queue a can not be deleted because it has 1 child queues: b"),
        ("full", "queue full cannot be deleted because it has allocated Pods: 3"),
        ("d", ""),
    ],
)
def test_a_queue_that_is_needed_cannot_be_deleted_w54(name: str, message: str) -> None:
    verdict = ask("/queues/validate", operation="DELETE", name=name, queues=TREE)
    assert verdict.message == message


def test_a_closed_queue_goes_though_its_status_counts_pods_still_w54() -> None:
    """Whoever deletes a queue's jobs and closes it need not wait for the next status."""
    closed = {**TREE[-1], "status": {**TREE[-1]["status"], "state": "Closed"}}
    verdict = ask("/queues/validate", operation="DELETE", name="full", queues=[*TREE[:-1], closed])
    assert verdict.allowed


def test_pods_do_not_hold_up_a_deletion_where_that_is_not_wanted_w54() -> None:
    verdict = ask(
        "/queues/validate", operation="DELETE", name="full", queues=TREE, check_allocated_pods=False
    )
    assert verdict.allowed


@pytest.mark.parametrize(
    "stated",
    [
        {"metadata": {"name": "q"}, "spec": "text"},
        {"metadata": {"name": "q"}, "spec": 5},
        {"metadata": {"name": "q", "annotations": "text"}, "spec": {}},
        {"metadata": {"name": "q", "annotations": {PATH: ["root"]}}, "spec": {}},
        {"metadata": [], "spec": {}},
    ],
)
def test_a_queue_that_cannot_be_read_is_left_to_the_schema_w50(stated: Json) -> None:
    verdict = ask("/queues/mutate", stated)
    assert verdict.allowed
    assert verdict.patch == ()
    assert not ask("/queues/validate", stated).allowed


def test_a_bad_amount_of_another_queue_is_nobody_elses_fault_w53() -> None:
    """It came in while no webhook was there: the schema's pattern lets some through."""
    bad = queue_named("bad", parent="a", capability={"cpu": "1e1.5"}, deserved={"cpu": "1e1.5"})
    tree = [queue_named("a", capability={"cpu": 4}, deserved={"cpu": 4}), bad]
    good = queue_named("good", parent="a", capability={"cpu": 2}, deserved={"cpu": 2})
    assert ask("/queues/validate", good, queues=tree).allowed
    above = queue_named("a", capability={"cpu": 3}, deserved={"cpu": 3})
    assert ask("/queues/validate", above, old=tree[0], operation="UPDATE", queues=tree).allowed
    mended = queue_named("bad", parent="a", capability={"cpu": 1}, deserved={"cpu": 1})
    assert ask("/queues/validate", mended, old=bad, operation="UPDATE", queues=tree).allowed
    verdict = ask("/queues/validate", bad, queues=tree)
    assert paths(verdict) == ["requestBody.spec.capability.cpu", "requestBody.spec.deserved.cpu"]


def test_queues_below_each_other_in_a_circle_or_a_long_line_are_walked_once_w53() -> None:
    line = [queue_named(f"q{n}", parent=f"q{n - 1}") for n in range(1, 3000)]
    circle = [queue_named("x", parent="y"), queue_named("y", parent="x")]
    last = queue_named("last", parent="q2999", capability={"cpu": 9})
    top = queue_named("q0", capability={"cpu": 8})
    verdict = ask(
        "/queues/validate", top, queues=[*line, *circle, last], old=queue_named("q0"),
        operation="UPDATE",
    )  # fmt: skip
    assert "smaller than its descendants' max capability=9" in verdict.message
    around = queue_named("x", parent="y", capability={"cpu": 1})
    changed = ask("/queues/validate", around, queues=circle, old=circle[0], operation="UPDATE")
    assert changed.allowed


@pytest.mark.parametrize("state", ["Closing", "Unknown"])
def test_a_queue_that_is_closing_may_be_changed(state: str) -> None:
    """Reported as volcano#3517."""
    old = queue_named("q", state=state, capability={"cpu": "4"})
    new = queue_named("q", state=state, capability={"cpu": "6"})
    assert ask("/queues/validate", new, old=old, operation="UPDATE").allowed
    opened = queue_named("q", state="Open", capability={"cpu": "4"})
    assert not ask("/queues/validate", new, old=opened, operation="UPDATE").allowed
