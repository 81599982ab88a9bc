"""Kind `api`: pure functions of amounts and pods."""

from collections.abc import Callable
from typing import Any

import msgspec

from shared.api.core import Pod
from shared.model import requests
from shared.model.resources import Absent, Resource, parse_list
from tests.conformance import amounts
from tests.conformance.network import PURE, run_pure
from tests.conformance.report import Mismatch, Unsupported, expect

_ABSENT = {"Zero": Absent.ZERO, "Infinity": Absent.INFINITY}


def run_api(case: dict[str, Any]) -> None:
    """Run a case of kind `api`; raises `Mismatch` or `Unsupported`."""
    function = case["function"]
    if function in PURE:
        run_pure(case)
    elif function == "CalculateNumOfFeasibleNodesToFind":
        _check_sampling(case)
    elif function in _OF_PODS:
        _check_pod(case, _OF_PODS[function])
    elif function in _OF_AMOUNTS:
        arguments = [_value(argument) for argument in case["args"]]
        _compare(function, _OF_AMOUNTS[function](*arguments), case["results"])
    else:
        raise Unsupported(function)


def _check_sampling(case: dict[str, Any]) -> None:
    options = case["options"]
    enough = amounts.feasible_nodes(
        *case["args"],
        minimum=options["minNodesToFind"],
        minimum_percent=options["minPercentageOfNodesToFind"],
        percent=options["percentageOfNodesToFind"],
    )
    expect(case["function"], [enough], case["results"])


def _check_pod(case: dict[str, Any], function: Callable[[Pod], Resource]) -> None:
    pod = case["pod"]
    gate = case.get("featureGates", {}).get("PodLevelResources", True)
    if not gate and (pod.get("spec") or {}).get("resources"):
        raise Unsupported("the feature gate PodLevelResources off")
    spec = pod.get("spec") or {}
    for container in (*spec.get("containers", []), *spec.get("initContainers", [])):
        container.setdefault("name", "c")
    _compare(case["function"], [function(msgspec.convert(pod, Pod, strict=False))], case["results"])


def _value(argument: Any) -> Any:
    if isinstance(argument, str) and argument in _ABSENT:
        return _ABSENT[argument]
    if isinstance(argument, dict):
        return _resource(argument)
    return argument


def _resource(stated: dict[str, Any]) -> Resource:
    if not {"memory", "milliCPU"} & stated.keys():
        return parse_list(stated)
    return Resource(
        cpu_milli=stated.get("milliCPU", 0),
        memory_bytes=stated.get("memory", 0),
        scalars=stated.get("scalars"),
        max_tasks=stated.get("maxTaskNum", 0),
    )


def _compare(function: str, results: list[Any], wanted: list[Any]) -> None:
    if len(results) != len(wanted):
        raise Mismatch(f"{function}: {results!r}, recorded {wanted!r}")
    for result, target in zip(results, wanted, strict=True):
        if isinstance(result, Resource):
            other = _resource(target)
            expect(function, dict(result.items()), dict(other.items()))
        elif isinstance(result, list):
            expect(function, sorted(result), sorted(target or []))
        else:
            expect(function, result, target)


def _verdict_and_names(names: list[str], *, verdict: bool) -> list[Any]:
    return [verdict, names]


def _exceeding(left: Resource, right: Resource, request: Resource | None) -> list[Any]:
    if request is None:
        names = amounts.less_equal_names(left, right, Absent.ZERO)
    else:
        names = amounts.greater_names(left, right, request)
    return _verdict_and_names(names, verdict=not names)


def _of_request(
    names_of: Callable[[Resource, Resource, Resource], list[str]],
) -> Callable[..., list[Any]]:
    """Return a function that says whether any requested dimension is named, and which."""

    def run(left: Resource, right: Resource | None, request: Resource | None) -> list[Any]:
        names = [] if request is None else names_of(left, right or Resource(), request)
        return _verdict_and_names(names, verdict=bool(names))

    return run


_OF_PODS: dict[str, Callable[[Pod], Resource]] = {
    "GetPodResourceRequest": requests.pod_request,
    "GetPodResourceWithoutInitContainers": requests.pod_request_without_init,
    "GetPodResourceLimit": requests.pod_limit,
}

_OF_AMOUNTS: dict[str, Callable[..., list[Any]]] = {
    "NewResource": lambda listed: [listed],
    "Resource.Add": lambda left, right: [left.plus(right)],
    "Resource.Sub": lambda left, right: [amounts.difference(left, right)],
    "Resource.SetMaxResource": lambda left, right: [left.at_least(right)],
    "Resource.MinDimensionResource": lambda *given: [amounts.minimum(*given)],
    "Resource.IsZero": lambda left, name: [amounts.is_zero(left, name)],
    "Resource.AddScalar": lambda left, name, amount: [left.plus(Resource(scalars={name: amount}))],
    "Resource.Less": lambda *given: [amounts.less(*given)],
    "Resource.LessEqual": lambda *given: [amounts.less_equal(*given)],
    "Resource.LessEqualWithResourcesName": lambda *given: [amounts.less_equal_names(*given)],
    "Resource.LessPartly": lambda left, right, absent: [left.less_somewhere(right, absent)],
    "Resource.LessEqualPartly": lambda *given: [amounts.less_equal_partly(*given)],
    "Resource.Equal": lambda left, right, _: [amounts.equal(left, right)],
    "Resource.GreaterPartly": lambda *given: _verdict_and_names(
        amounts.less_equal_names(*given), verdict=bool(amounts.less_equal_names(*given))
    ),
    "Resource.LessEqualWithDimensionAndResourcesName": _exceeding,
    "Resource.LessEqualPartlyWithDimension": _of_request(amounts.fitting_names),
    "Resource.GreaterPartlyWithDimension": _of_request(amounts.greater_names),
    "Resource.LessEqualPartlyWithDimensionZeroFiltered": _of_request(amounts.fitting_known),
    "Resource.GreaterPartlyWithRelevantDimensions": _of_request(amounts.greater_known),
    "Resource.Diff": amounts.diff,
    "Resource.String": lambda resource: [resource.text()],
    "Intersection": lambda left, right: [amounts.scalar_names(left, right)],
    "IntersectionWithIgnoredScalarResources": lambda left, right: [
        amounts.scalar_names(left, right)
    ],
}
