"""Kind `api`: pure functions of amounts and pods."""

import math
from collections.abc import Callable
from typing import Any

import msgspec

from services.scheduler.engine.sampling import Sampling
from shared.api.core import Pod
from shared.model import requests
from shared.model.resources import Absent, Resource, parse_list
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
    sampling = Sampling(
        minimum=options["minNodesToFind"],
        minimum_percent=options["minPercentageOfNodesToFind"],
        percent=options["percentageOfNodesToFind"],
    )
    expect(case["function"], [sampling.enough(*case["args"])], case["results"])


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


def _none_of(request: Resource | None) -> bool:
    return request is None


def _exceeding(left: Resource, right: Resource, request: Resource | None) -> list[Any]:
    if request is None:
        names = left.exceeding(right, Absent.ZERO)
    else:
        names = left.exceeding_of(right, request)
    return _verdict_and_names(names, verdict=not names)


def _fitting(left: Resource, right: Resource, request: Resource | None) -> list[Any]:
    names = [] if _none_of(request) else left.fitting_of(right, request)
    return _verdict_and_names(names, verdict=bool(names))


def _greater(left: Resource, right: Resource | None, request: Resource | None) -> list[Any]:
    names = [] if _none_of(request) else left.exceeding_of(right or Resource(), request)
    return _verdict_and_names(names, verdict=bool(names))


def _scalar_names(left: Resource, right: Resource) -> list[list[str]]:
    common = set(left.names()) & set(right.names())
    return [sorted(common)]


def _fitting_known(left: Resource, right: Resource, request: Resource | None) -> list[Any]:
    names = [] if request is None else left.fitting_of_known(right, request)
    return _verdict_and_names(names, verdict=bool(names))


def _greater_known(left: Resource, right: Resource | None, request: Resource | None) -> list[Any]:
    names = [] if request is None else left.exceeding_of_known(right or Resource(), request)
    return _verdict_and_names(names, verdict=bool(names))


def _parted(left: Resource, right: Resource, absent: Absent) -> list[Resource]:
    """Write infinite differences as Go's sentinel, -1."""
    return [
        msgspec.structs.replace(
            part,
            scalars={
                name: -1 if amount == math.inf else amount
                for name, amount in (part.scalars or {}).items()
            },
        )
        for part in left.parted(right, absent)
    ]


_OF_PODS: dict[str, Callable[[Pod], Resource]] = {
    "GetPodResourceRequest": requests.pod_request,
    "GetPodResourceWithoutInitContainers": requests.pod_request_without_init,
    "GetPodResourceLimit": requests.pod_limit,
}

_OF_AMOUNTS: dict[str, Callable[..., list[Any]]] = {
    "NewResource": lambda listed: [listed],
    "Resource.Add": lambda left, right: [left.plus(right)],
    "Resource.Sub": lambda left, right: [left.minus(right)],
    "Resource.SetMaxResource": lambda left, right: [left.at_least(right)],
    "Resource.MinDimensionResource": lambda left, right, absent: [left.at_most(right, absent)],
    "Resource.IsZero": lambda left, name: [left.get(name) < 0.1],
    "Resource.AddScalar": lambda left, name, amount: [left.plus(Resource(scalars={name: amount}))],
    "Resource.Less": lambda left, right, absent: [left.less(right, absent)],
    "Resource.LessEqual": lambda left, right, absent: [left.fits_in(right, absent)],
    "Resource.LessEqualWithResourcesName": lambda left, right, absent: [
        left.exceeding(right, absent)
    ],
    "Resource.LessPartly": lambda left, right, absent: [left.less_somewhere(right, absent)],
    "Resource.LessEqualPartly": lambda left, right, absent: [left.fits_somewhere(right, absent)],
    "Resource.Equal": lambda left, right, _: [left.equals(right)],
    "Resource.GreaterPartly": lambda left, right, absent: _verdict_and_names(
        left.exceeding(right, absent), verdict=bool(left.exceeding(right, absent))
    ),
    "Resource.LessEqualWithDimensionAndResourcesName": _exceeding,
    "Resource.LessEqualPartlyWithDimension": _fitting,
    "Resource.GreaterPartlyWithDimension": _greater,
    "Resource.LessEqualPartlyWithDimensionZeroFiltered": _fitting_known,
    "Resource.GreaterPartlyWithRelevantDimensions": _greater_known,
    "Resource.Diff": _parted,
    "Resource.String": lambda resource: [resource.text()],
    "Intersection": _scalar_names,
    "IntersectionWithIgnoredScalarResources": _scalar_names,
}
