"""The core of the embedded API server, driven without a network and without waiting.

`handle` answers a request at once: a function of the test answers for the webhooks. The simulation
and unit tests use it; `pumice up` drives the same core by `steps`
(`pumice/embedded/apiserver/http`).
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from pumice.embedded.apiserver import core
from pumice.embedded.apiserver.admission import AdmissionResponse, Call
from pumice.embedded.apiserver.api_state import CRDS
from pumice.embedded.apiserver.replies import ApiReply, ApiRequest, Object, RequestFailure
from pumice.embedded.apiserver.watching import Watch


def unreachable(call: Call) -> AdmissionResponse:
    """Answer for webhooks where none can be reached."""
    return AdmissionResponse(error=f"no webhook can be reached from here: {call.webhook}")


class ApiServer(core.ApiServer):
    """An API server in memory, with CRDs from its start."""

    def __init__(
        self,
        *,
        crds: Iterable[Object] = (),
        webhooks: Callable[[Call], AdmissionResponse] = unreachable,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._webhooks = webhooks
        for crd in crds:
            self.api.add(CRDS, "", crd["metadata"]["name"], spec=self._spec_of(crd), status={})
        self.tick()

    def handle(self, request: ApiRequest) -> ApiReply | Watch:
        """Carry out a request; refusals are answers too."""
        steps = self.steps(request)
        try:
            call = next(steps)
            while True:
                call = steps.send(self._webhooks(call))
        except StopIteration as done:
            return done.value

    def compact(self) -> None:
        """Forget past changes: a watch that starts in the past gets 410."""
        self.api.store.compact()

    def break_watches(self, failure: RequestFailure) -> None:
        """End all watches with an error event, as a server does in mid-stream."""
        for watches in self._watches.values():
            for watch in list(watches):
                watch.fail(failure)
        self._watches.clear()

    def _spec_of(self, crd: Object) -> Object:
        whole = msgspec.json.decode(msgspec.json.encode(crd))
        self.api.form(self.api.kind(CRDS)).tidy(whole)
        spec: Object = whole["spec"]
        spec.setdefault("conversion", {"strategy": "None"})
        return spec
