"""JobFlows: jobs that wait for each other in an order that there is (W60)."""

import msgspec

from services.admission.rules.review import Facts, Request, Terms, Verdict, refused, unexpected
from shared.api.flow import JobFlow
from shared.api.lenient import lenient
from shared.jobs.flows import flow_problems
from shared.jobs.problems import unreadable


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
