"""Amounts are read and added up as T07 says."""

from shared.model.resources import Absent, Resource, is_counted, parse_list

GPU = "nvidia.com/gpu"


def test_a_list_is_parsed_in_canonical_units():
    parsed = parse_list({"cpu": "1500m", "memory": "1Gi", "pods": "110", GPU: "2"})
    assert parsed.cpu_milli == 1500
    assert parsed.memory_bytes == 1 << 30
    assert parsed.scalars == {"pods": 110, GPU: 2000}
    assert parsed.max_tasks == 110


def test_object_quotas_and_unknown_plain_names_do_not_count():
    names = ("cpu", "hugepages-2Mi", GPU, "count/pods", "requests.cpu/x", "foo")
    assert [name for name in names if is_counted(name)] == ["cpu", "hugepages-2Mi", GPU]


def test_pods_alone_are_nothing():
    assert Resource(scalars={"pods": 1}).is_empty()
    assert not Resource(scalars={"pods": 1, GPU: 1}).is_empty()


def test_sums_and_bounds_go_by_dimension():
    left = Resource(cpu_milli=1, scalars={GPU: 4})
    right = Resource(cpu_milli=2, memory_bytes=3)
    assert left.plus(right) == Resource(cpu_milli=3, memory_bytes=3, scalars={GPU: 4})
    assert left.at_least(right) == Resource(cpu_milli=2, memory_bytes=3, scalars={GPU: 4})


def test_a_dimension_that_is_missing_counts_as_zero_or_as_infinity():
    limit, total = Resource(cpu_milli=2), Resource(cpu_milli=1, scalars={GPU: 1000})
    assert limit.less_somewhere(total, Absent.ZERO)
    assert not limit.less_somewhere(total, Absent.INFINITY)
