"""Amounts compare as T07 says."""

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


def test_differences_below_a_tenth_are_none():
    assert Resource(cpu_milli=1000.05).fits_in(Resource(cpu_milli=1000), Absent.ZERO)
    assert not Resource(cpu_milli=1000.1).fits_in(Resource(cpu_milli=1000), Absent.ZERO)


def test_an_absent_dimension_is_zero_or_infinity_as_the_caller_says():
    wants = Resource(cpu_milli=1, scalars={GPU: 1000})
    has = Resource(cpu_milli=2)
    assert not wants.fits_in(has, Absent.ZERO)
    assert wants.fits_in(has, Absent.INFINITY)
    assert wants.exceeding(has, Absent.ZERO) == [GPU]


def test_an_amount_that_the_left_side_lacks_exceeds_infinity_the_other_way_round():
    assert not Resource().fits_in(Resource(scalars={GPU: 1}), Absent.INFINITY)
    assert Resource().fits_in(Resource(scalars={GPU: 1}), Absent.ZERO)


def test_pods_alone_are_nothing():
    assert Resource(scalars={"pods": 1}).is_empty()
    assert not Resource(scalars={"pods": 1, GPU: 1}).is_empty()


def test_only_requested_dimensions_decide_about_a_request():
    used = Resource(cpu_milli=5000, memory_bytes=10, scalars={"pods": 9})
    limit = Resource(cpu_milli=4000, memory_bytes=20, scalars={"pods": 1})
    assert used.exceeding_of(limit, Resource(memory_bytes=1, scalars={"pods": 1})) == []
    assert used.exceeding_of(limit, Resource(cpu_milli=1)) == ["cpu"]


def test_sums_and_bounds_go_by_dimension():
    left = Resource(cpu_milli=1, scalars={GPU: 4})
    right = Resource(cpu_milli=2, memory_bytes=3)
    assert left.plus(right) == Resource(cpu_milli=3, memory_bytes=3, scalars={GPU: 4})
    assert left.at_least(right) == Resource(cpu_milli=2, memory_bytes=3, scalars={GPU: 4})
    assert left.at_most(right, Absent.INFINITY).scalars == {GPU: 4}
    assert left.at_most(right, Absent.ZERO).scalars == {GPU: 0}
