"""JobFlows: jobs that wait for each other in an order that there is (W60)."""

import msgspec

from services.admission.rules.review import Facts, Request, Terms, Verdict, refused, unexpected
from shared.api.flow import JobFlow
from shared.api.lenient import lenient
from shared.jobs.order import in_circles
from shared.jobs.problems import Problem, Problems, some, unreadable

NOT_DAG = "jobflow Flow is not DAG"


def validate(request: Request, facts: Facts, terms: Terms) -> Verdict:
    """Refuse a flow that names unknown jobs or goes round in a circle."""
    del facts, terms
    if wrong := unexpected(request, "CREATE", "UPDATE"):
        return wrong
    try:
        flow = lenient(request.object, JobFlow)
    except msgspec.ValidationError as error:
        return refused([unreadable(error)])
    return refused(flow_problems(flow))


def flow_problems(flow: JobFlow) -> Problems:
    """Return what is wrong with the order of a flow's jobs.

    ⚠ A name may come twice: the last one of it counts, as in Volcano.
    """
    needs = {f.name: tuple(f.depends_on.targets) if f.depends_on else () for f in flow.spec.flows}
    for index, one in enumerate(flow.spec.flows):
        for target in one.depends_on.targets if one.depends_on else ():
            if target not in needs:
                yield Problem(
                    f"spec.flows[{index}].dependsOn.targets",
                    f"{NOT_DAG}: vertex is not defined: {target}",
                )
    if stuck := in_circles(needs):
        yield Problem("spec.flows", f"{NOT_DAG}: {some(stuck)} wait for each other")
