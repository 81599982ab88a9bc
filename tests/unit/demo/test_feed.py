"""What a list after an interruption tells."""

from pumice.demo.model import WatchOp
from pumice.demo.story import changes_of_list
from tests.unit.demo.objects import worker_pod


def test_a_list_tells_what_is_there_what_has_gone_and_what_was_replaced():
    known = {}
    first = [
        worker_pod("train", 0, uid="a"),
        worker_pod("train", 1, uid="b"),
        worker_pod("train", 2, uid="c"),
    ]
    told = list(changes_of_list(known, first))
    assert [change.op for change in told] == [WatchOp.SEEN] * 3
    second = [worker_pod("train", 0, "node-0", uid="a"), worker_pod("train", 2, uid="d")]
    told = [(change.op, change.obj.metadata.uid) for change in changes_of_list(known, second)]
    assert told == [
        (WatchOp.GONE, "b"),
        (WatchOp.GONE, "c"),
        (WatchOp.SEEN, "a"),
        (WatchOp.SEEN, "d"),
    ]
    assert sorted(known) == ["default/train-worker-0", "default/train-worker-2"]
