"""The table of what is watched (CA01)."""

import pytest

from services.cache.kinds import rows
from shared.api.core import Pod, PodSpec
from shared.api.kinds import KINDS


def test_every_kind_of_the_catalogue_is_watched_and_no_secret_is() -> None:
    watched = [row.kind.token for row in rows(["volcano"], mindcluster=True)]
    assert sorted(watched) == sorted(KINDS)
    assert "secrets" not in watched


@pytest.mark.parametrize(
    ("scheduler", "node", "kept"),
    [
        ("volcano", "", True),
        ("mine", "", True),
        ("default-scheduler", "", False),
        ("default-scheduler", "n1", True),
    ],
)
def test_pods_are_ours_or_have_a_node(scheduler: str, node: str, kept: bool) -> None:
    """CA01."""
    row = rows(["volcano", "mine"])[0]
    assert row.keep(Pod(spec=PodSpec(scheduler_name=scheduler, node_name=node))) is kept
