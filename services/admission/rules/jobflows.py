"""JobFlows: jobs that wait for each other in an order that there is (W60)."""

from services.admission.rules.review import AdmissionRequest, Facts, Terms, Verdict, read, refused
from shared.api.flow import JobFlow
from shared.jobs.flows import flow_problems


def validate(request: AdmissionRequest, facts: Facts, terms: Terms) -> Verdict:
    """Refuse a flow that names unknown jobs or goes round in a circle."""
    del facts, terms
    flow = read(request, JobFlow, "CREATE", "UPDATE")
    return flow if isinstance(flow, Verdict) else refused(flow_problems(flow))
