"""Leases of the cluster, as answers of the API server are read."""

import msgspec
import pytest

from shared.kube import leases


def answer(**metadata: str) -> bytes:
    return msgspec.json.encode({"metadata": metadata, "spec": {"holderIdentity": "a"}})


def test_a_lease_is_read_with_the_uid_and_version_that_a_write_names() -> None:
    lease = leases.read(answer(uid="u", resourceVersion="7"))
    assert (lease.metadata.uid, lease.metadata.resource_version) == ("u", "7")
    assert lease.spec.holder_identity == "a"


@pytest.mark.parametrize("metadata", [{}, {"uid": "u"}, {"resourceVersion": "7"}], ids=str)
def test_a_lease_without_one_of_them_is_refused(metadata: dict[str, str]) -> None:
    with pytest.raises(msgspec.DecodeError, match="without uid or resourceVersion"):
        leases.read(answer(**metadata))
