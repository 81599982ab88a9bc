"""What a pod asks for (T04)."""

import pytest

from shared.api.core import Pod
from shared.model.requests import pod_request, scoring_request
from tests.support.structs import pod


def container(cpu: str | None = None, memory: str | None = None, **more):
    requests = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v}
    return {"name": more.pop("name", "c"), "resources": {"requests": requests}, **more}


def pod_of(*containers, init=(), **more) -> Pod:
    return pod(containers=containers, initContainers=init, **more)


@pytest.mark.parametrize(
    ("subject", "cpu_milli"),
    [
        pytest.param(pod_of(container("1"), container("500m")), 1500, id="containers add up"),
        pytest.param(pod_of(container("1"), init=[container("4")]), 4000, id="init peaks"),
        pytest.param(
            pod_of(container("1"), init=[container("2", restartPolicy="Always")]),
            3000,
            id="sidecar stays",
        ),
        pytest.param(
            pod_of(container("1"), init=[container("2", restartPolicy="Always"), container("5")]),
            7000,
            id="init beside sidecar",
        ),
        pytest.param(pod_of(container("1"), overhead={"cpu": "250m"}), 1250, id="overhead"),
        pytest.param(
            pod_of(container("1"), resources={"requests": {"cpu": "8"}}), 8000, id="pod level"
        ),
    ],
)
def test_the_request_covers_the_fullest_moment(subject, cpu_milli):
    assert pod_request(subject).cpu_milli == cpu_milli


def test_every_pod_asks_for_one_pod():
    request = pod_request(pod_of())
    assert request.scalars == {"pods": 1}
    assert request.is_empty()


def test_while_a_resize_is_under_way_the_larger_figure_counts():
    status = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}
    assert pod_request(pod_of(container("1"), status=status)).cpu_milli == 3000


def test_an_infeasible_resize_leaves_what_the_node_has_set_aside():
    status = {
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
        "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
    }
    assert pod_request(pod_of(container("9"), status=status)).cpu_milli == 1000


def test_scorers_take_a_default_for_containers_that_ask_for_nothing():
    assert scoring_request(pod_of(container("1"), container())) == (1100, 2 * 200 * 1024 * 1024)
