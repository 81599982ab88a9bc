"""What a JobFlow must be for its jobs to have an order (W60), for admission and the controller."""

from typing import Final

from shared.api.flow import JobFlow
from shared.jobs.order import in_circles
from shared.jobs.problems import Problem, Problems, some

NOT_DAG: Final = "jobflow Flow is not DAG"


def flow_problems(flow: JobFlow) -> Problems:
    """Return what is wrong with the order of a flow's jobs, in Volcano's words.

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
