"""CEL as conditions on devices use it: values, functions, optional fields."""

import pytest

from services.scheduler.adapters.expressions import waiting_evaluator
from services.scheduler.policy.devices.selectors import SelectorFault, content_of, unreadable
from shared.api.resource import Device, DeviceAttribute, DeviceCapacity

DEVICE = Device(
    name="d0",
    attributes={
        "model": DeviceAttribute(string_value="A100"),
        "index": DeviceAttribute(int_value=3),
        "healthy": DeviceAttribute(bool_value=True),
        "driver": DeviceAttribute(version_value="1.10.2-rc.1"),
        "other.com/numa": DeviceAttribute(int_value=1),
    },
    capacity={"memory": DeviceCapacity(value="40Gi")},
)
A = 'device.attributes["gpu.com"]'
M = 'device.capacity["gpu.com"].memory'


def holds(expression: str) -> object:
    evaluator = waiting_evaluator()
    evaluator.begin()
    fault = unreadable(expression)
    return fault or evaluator.verdict("ns", expression, content_of("gpu.com", DEVICE))


TRUE = [
    'device.driver == "gpu.com"',
    f'{A}.model == "A100" && {A}.index in [1, 3]',
    f'{A}.model.matches("^A[0-9]+$") && !{A}.model.startsWith("H")',
    f'{A}.model.lowerAscii() == "a100" && size({A}.model) == 4',
    f"{A}.healthy && {A}.index > 2 && {A}.index <= 3 && {A}.index % 2 == 1",
    'device.attributes["other.com"].numa == 1',
    f"has({A}.model) && !has({A}.none)",
    f'"model" in {A} && !("none" in {A})',
    '"gpu.com" in device.attributes && !("none.com" in device.attributes)',
    '!has(device.attributes["none.com"].x)',
    f"{A}.?none.orValue(7) == 7 && {A}.?index.orValue(7) == 3",
    'device.attributes[?"none.com"].?x.orValue("y") == "y"',
    f"!{A}.?none.hasValue() && {A}.?none.or({A}.?index).orValue(0) == 3",
    f'{M}.compareTo(quantity("40Gi")) == 0 && {M}.isGreaterThan(quantity("39Gi"))',
    f'{M} == quantity("40960Mi") && quantity("1").add(quantity("500m")) == quantity("1500m")',
    f'{A}.driver.isLessThan(semver("1.10.2")) && {A}.driver.isGreaterThan(semver("1.9.9"))',
    f"{A}.driver.major() == 1 && {A}.driver.minor() == 10 && {A}.driver.patch() == 2",
    'isSemver("1.2.3") && !isSemver("1.2") && isQuantity("1Gi") && !isQuantity("x")',
    f'cel.bind(a, {A}, a.model == "A100" && a.index == 3)',
    f"[1, 2, 3].exists(n, n == {A}.index) && [1, 2].all(n, n < {A}.index)",
    "[1, 2, 3].filter(n, n > 1).map(n, n * 2) == [4, 6] && [1, 2].exists_one(n, n == 1)",
    '{"a": 1}["a"] == 1 && size({"a": 1}) == 1',
    f"{A}.none == 1 || true",
    f"!({A}.none == 1 && false)",
    f'{A}.index != "3" && {A}.index < 3.5',
    '(1 < 2 ? "yes" : "no") == "yes"',
    "7 / 2 == 3 && -7 / 2 == -3 && -7 % 2 == -1 && 1.5 + 1.5 == 3.0",
    r"'\x41\u0042' == 'AB' && r'\n' == '\\n' && '''a''' == 'a'",
    "0x10 == 16 && int('5') == 5 && string(5) == '5' && double('2.5') > 2.0",
    "'a,b'.split(',').join('-') == 'a-b' && 'abc'.substring(1, 2) == 'b'",
    'bool("T") && bool("true") && !bool("F") && [1, 2.5].sum() == 3.5',
    "sets.contains([1, 2], [2]) && !sets.intersects([1], [2])",
    "!device.allowMultipleAllocations // a comment",
    'device.attributes[?"none.com"].hasValue() && has(device.attributes.none)',
    'cel.bind(all, device.attributes, !has(all["none.com"].x) && has(all["gpu.com"].model))',
    'cel.bind(d, device, d.capacity["none.com"].?x.hasValue() == false)',
    '!("x" in device.attributes["none.com"]) && size(device.attributes) == 2',
    f"[1, 2].isSorted() && ![2, 1].isSorted() && [1, {A}.index].max() == 3 && [2, 1].min() == 1",
    "['a', 'b'].indexOf('b') == 1 && 'abab'.lastIndexOf('b') == 3 && ['a'].indexOf('c') == -1",
    f'{A}.model.find("[0-9]+") == "100" && "a1b22".findAll("[0-9]+") == ["1", "22"]',
    'semver("v01.2", true) == semver("1.2.0") && isSemver("v1", true)',
    f'{A}.driver == semver("1.10.2-rc.1+build") && {A}.driver != semver("1.10.2")',
    'quantity("2").sub(quantity("500m")).asApproximateFloat() == 1.5 && quantity("-1").sign() < 0',
    "optional.of(1).optMap(x, x + 1).orValue(0) == 2 && [1, 2].all(i, v, v == i + 1)",
]


@pytest.mark.parametrize("expression", TRUE)
def test_a_condition_holds(expression):
    assert holds(expression) is True
    assert holds(f"!({expression.partition(' //')[0]})") is False


FAULTS = {
    "1 +": "compile",
    "none == 1": "undeclared reference to 'none'",
    "bogus(1)": "undeclared reference to 'bogus'",
    "[1].all(x, y)": "undeclared reference to 'y'",
    "true || [1].bogus()": "undeclared reference to 'bogus'",
    "size()": "overloads",
    'bool("yes")': "bool",
    "bool([1])": "bool",
    "['a'].sum() == 1": "unsupported operand",
    "'a' 'b'": "extraneous",
    '"open': "token",
    "9223372036854775808 > 0": "invalid int",
    f"{A}.none == 1": "no such key: none",
    "device.none": "no such key: none",
    f"{A}.model + 1 == 2": "overloads",
    f"{A}.model > 1": "overloads",
    "9223372036854775807 + 1 > 0": "overflow",
    "1 / 0 == 1": "zero",
    "1": "neither true nor false",
    '"a".matches("(")': "regular expression",
    f'{A}.model.isLessThan(semver("1.0.0"))': "overloads",
    f'{M}.isLessThan(semver("1.0.0"))': "no order",
    f'{M} < quantity("1")': "overloads",
    "(" * 80 + "true" + ")" * 80: "recursion",
    "1" + "+1" * 100 + " > 0": "recursion",
    " " * 11_000 + "true": "bytes",
}


@pytest.mark.parametrize("expression", FAULTS)
def test_a_fault_is_told(expression):
    assert FAULTS[expression] in str(holds(expression))


def test_long_chains_are_no_nesting():
    assert holds(" && ".join(["true"] * 1_000)) is True


def test_an_attribute_of_an_unknown_kind_is_a_fault():
    with pytest.raises(SelectorFault, match="not known here"):
        content_of("gpu.com", Device(name="d", attributes={"x": DeviceAttribute()}))


def test_devices_that_look_the_same_have_the_same_content():
    twin = Device(
        name="d1",
        attributes=dict(reversed(DEVICE.attributes.items())),
        capacity=DEVICE.capacity,
        node_name="n2",
    )
    assert content_of("gpu.com", twin) == content_of("gpu.com", DEVICE)
    assert content_of("other.com", twin) != content_of("gpu.com", DEVICE)


def test_what_drivers_write_wrong_is_a_fault_of_the_device():
    for broken in (
        Device(name="d", attributes={"v": DeviceAttribute(version_value="one")}),
        Device(name="d", capacity={"memory": DeviceCapacity(value="much")}),
    ):
        evaluator = waiting_evaluator()
        evaluator.begin()
        found = evaluator.verdict("ns", "true", content_of("gpu.com", broken))
        assert isinstance(found, SelectorFault)
