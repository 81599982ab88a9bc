"""CEL as conditions on devices use it: values, functions, optional fields, bounds."""

from itertools import product

import pytest

from services.scheduler.policy.devices.evaluation import Evaluation
from services.scheduler.policy.devices.selectors import SelectorFault, Selectors, variables_of
from services.scheduler.policy.devices.values import (
    FUNCTIONS,
    NONE,
    EvaluationError,
    Quantity,
    version,
)
from shared.api.resource import (
    CELDeviceSelector,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceSelector,
)

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


def holds(expression: str) -> bool:
    selector = DeviceSelector(cel=CELDeviceSelector(expression=expression))
    return Selectors().admit((selector,), variables_of("gpu.com", DEVICE))


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
    f'{A}.index != "3" && 1 != true',
    '(1 < 2 ? "yes" : "no") == "yes"',
    "7 / 2 == 3 && -7 / 2 == -3 && -7 % 2 == -1 && 1.5 + 1.5 == 3.0",
    r"'\x41\u0042' == 'AB' && r'\n' == '\\n' && '''a''' == 'a'",
    "0x10 == 16 && int('5') == 5 && string(5) == '5' && double('2.5') > 2.0",
    "'a,b'.split(',').join('-') == 'a-b' && 'abc'.substring(1, 2) == 'b'",
    'bool("T") && bool("true") && !bool("F") && [1, 2.5].sum() == 3.5',
    "sets.contains([1, 2], [2]) && !sets.intersects([1], [2])",
    "!device.allowMultipleAllocations // a comment",
]


@pytest.mark.parametrize("expression", TRUE)
def test_a_condition_holds(expression):
    assert holds(expression) is True
    assert holds(f"!({expression.partition(' //')[0]})") is False


FAULTS = {
    "1 +": "compile",
    "none == 1": "no variable none",
    "none(1)": "no function none",
    "size()": "other operands",
    'bool("yes")': "bool",
    "bool([1])": "bool",
    "['a'].sum() == 1": "number",
    "'a' 'b'": "unexpected",
    '"open': "unexpected",
    "9223372036854775808 > 0": "64 bits",
    f"{A}.none == 1": "no such key: none",
    f"{A}.model + 1 == 2": "number",
    f"{A}.model > 1": "no order",
    "9223372036854775807 + 1 > 0": "64 bits",
    "1 / 0 == 1": "zero",
    "1": "neither true nor false",
    '"a".matches("(")': "regular expression",
    f'{A}.model.isLessThan(semver("1.0.0"))': "no order",
    "(" * 80 + "true" + ")" * 80: "deep",
    "1" + "+1" * 100 + " > 0": "deep",
    "!" * 100 + "true": "deep",
    " " * 11_000 + "true": "letters",
}


@pytest.mark.parametrize("expression", FAULTS)
def test_a_fault_is_told(expression):
    with pytest.raises(SelectorFault, match=FAULTS[expression]):
        holds(expression)


NUMBERS = (1, -1, True, 1.5, [1], Quantity(5000))
OTHERS = ("a", "1Gi", "1.2.3", "(", ["a"], {"a": 1}, None, NONE, version("1.2.3"))
VALUES = NUMBERS + OTHERS


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_refuses_values_in_its_own_words_only(name):
    function, numbers = FUNCTIONS[name]
    given = [values for number in numbers for values in product(VALUES, repeat=number)]
    refused = 0
    for values in given:
        try:
            function(*values)
        except EvaluationError:
            refused += 1
    assert refused < len(given)


def test_long_chains_are_no_nesting():
    assert holds(" && ".join(["true"] * 1_000))


COSTLY = [
    "[1,2,3,4,5,6,7,8,9,10].all(a, " * 7 + "true" + ")" * 7,
    f"cel.bind(a, [{','.join('1' * 1_000)}], a.all(x, a.all(y, x == y)))",
    "['x'].map(a, a+a).map(a, a+a)" + ".map(a, a+a)" * 30 + " == []",
]


@pytest.mark.parametrize("expression", COSTLY, ids=["nested", "squared", "growing"])
def test_an_expression_has_a_bounded_number_of_steps_and_is_not_tried_again(
    expression, monkeypatch
):
    selectors, variables = Selectors(), variables_of("gpu.com", DEVICE)
    selector = DeviceSelector(cel=CELDeviceSelector(expression=expression))
    with pytest.raises(SelectorFault, match="more than 100000 steps"):
        selectors.admit((selector,), variables)
    monkeypatch.setattr(Evaluation, "value", None)
    with pytest.raises(SelectorFault, match="more than 100000 steps"):
        selectors.admit((selector,), variables)


def test_an_attribute_of_an_unknown_kind_is_a_fault():
    with pytest.raises(SelectorFault, match="not known here"):
        variables_of("gpu.com", Device(name="d", attributes={"x": DeviceAttribute()}))
