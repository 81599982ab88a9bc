"""What is registered and when the API server calls (W01)."""

import base64

import msgspec
import pytest

from services.admission.adapters.registration import WebhookAddress, WebhookRegistration
from services.admission.adapters.server import answer, read_review
from services.admission.rules.catalogue import HOOKS, conditions
from services.admission.rules.groups import ResourceGroup, Selects
from services.admission.rules.review import Terms, denied, mutated
from services.admission.settings import AdmissionSettings
from shared.api.kinds import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from shared.runtime.errors import Rejected
from tests.unit.admission.asking import ask

VOLCANO = (
    "/jobs/mutate",
    "/jobs/validate",
    "/podgroups/mutate",
    "/pods/validate",
    "/pods/mutate",
    "/queues/mutate",
    "/queues/validate",
)


def webhooks(
    address: WebhookAddress, *, terms: Terms | None = None, policy: str = "Ignore"
) -> list[dict]:
    registration = WebhookRegistration(
        None,
        name="x",
        address=address,
        hooks=list(HOOKS.values()),
        terms=lambda: terms or Terms(),
        failure_policy=policy,
        timeout_s=5,
        log=None,
    )
    return list(registration._webhooks(HOOKS.values(), "BUNDLE"))


def test_volcanos_paths_are_served_and_enabled_w01() -> None:
    enabled = AdmissionSettings().enabled_admission
    assert set(VOLCANO) <= set(enabled)
    assert set(HOOKS) - set(enabled) == {"/podgroups/validate"}


def test_a_webhook_waits_five_seconds_and_then_admits_w01() -> None:
    found = webhooks(WebhookAddress(url="https://10.0.0.5:8443/"))
    assert {hook["failurePolicy"] for hook in found} == {"Ignore"}
    assert {hook["timeoutSeconds"] for hook in found} == {5}
    assert {hook["sideEffects"] for hook in found} == {"None"}
    strict = webhooks(WebhookAddress(url="https://10.0.0.5:8443/"), policy="Fail")
    assert {hook["failurePolicy"] for hook in strict} == {"Fail"}


def test_it_is_found_at_its_url_or_behind_its_service_w01() -> None:
    by_url = webhooks(WebhookAddress(url="https://10.0.0.5:8443/"))[0]["clientConfig"]
    bundle = base64.b64encode(b"BUNDLE").decode()
    assert by_url == {"caBundle": bundle, "url": "https://10.0.0.5:8443/jobs/mutate"}
    behind = WebhookAddress(namespace="sys", service="adm", port=443)
    assert webhooks(behind)[0]["clientConfig"]["service"] == {
        "namespace": "sys", "name": "adm", "port": 443, "path": "/jobs/mutate"
    }  # fmt: skip
    assert behind.hosts == ("adm.sys.svc", "adm.sys.svc.cluster.local", "adm.sys")
    assert WebhookAddress(url="https://[::1]:8443").hosts == ("::1",)


def test_the_systems_namespace_and_our_own_are_left_alone_w01() -> None:
    for hook in webhooks(WebhookAddress(namespace="sys", service="adm")):
        (rule,) = hook["namespaceSelector"]["matchExpressions"]
        assert (rule["operator"], rule["values"]) == ("NotIn", ["kube-system", "sys"])


def test_no_pod_is_sent_unless_a_rule_has_something_to_read_w01() -> None:
    assert conditions(HOOKS["/pods/mutate"], Terms()) is None
    names = [hook["name"] for hook in webhooks(WebhookAddress(url="https://h"))]
    assert "mutatepod.volcano.sh" not in names
    (budget, ours) = conditions(HOOKS["/pods/validate"], Terms(scheduler_names=("a", 'b"\n')))
    assert '"volcano.sh/jdb-min-available" in object.metadata.annotations' in budget[1]
    assert ours[1].endswith(r'object.spec.schedulerName in ["a", "b\"\n"]')


def test_only_pods_that_may_belong_to_a_group_are_sent_w30() -> None:
    groups = [
        ResourceGroup(object=Selects(key="namespace", value=("a", "b"))),
        ResourceGroup(object=Selects(key="annotation", value=("team: x",))),
        ResourceGroup(resource_group="gpu"),
    ]
    ((_, text),) = conditions(HOOKS["/pods/mutate"], Terms(resource_groups=groups))
    assert 'request.namespace in ["a", "b"]' in text
    assert '"team" in object.metadata.annotations' in text
    assert '"volcano.sh/resource-group" in object.metadata.annotations' in text


def test_only_pods_that_ask_for_a_gate_are_sent_where_gates_are_given_w31() -> None:
    ((_, text),) = conditions(HOOKS["/pods/mutate"], Terms(queue_gates=True))
    assert '"scheduling.volcano.sh/queue-allocation-gate" in object.metadata.annotations' in text


def test_hooks_that_change_and_hooks_that_judge_are_registered_apart_w01() -> None:
    assert {hook.mutates for hook in HOOKS.values() if hook.path.endswith("mutate")} == {True}
    assert (MUTATING_WEBHOOKS.namespaced, VALIDATING_WEBHOOKS.namespaced) == (False, False)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "no AdmissionReview"),
        (b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}', "v1beta1"),
        (b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}', "request"),
        (
            (
                b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",'
                b' "request": {"uid": 3, "operation": "CREATE"}}'
            ),
            "request.uid: expected str",
        ),
    ],
)
def test_what_is_no_review_is_refused_with_the_field_w01(body: bytes, said: str) -> None:
    with pytest.raises(Rejected) as refusal:
        read_review(body)
    assert said in str(refusal.value)


def test_an_object_of_another_kind_is_refused_w01() -> None:
    verdict = ask("/queues/validate", {}, resource="podgroups")
    assert verdict.message == "expect resource to be {scheduling.volcano.sh v1beta1 queues}"


def test_an_answer_bears_the_uid_and_the_patch_or_the_faults_w01() -> None:
    operation = {"op": "add", "path": "/spec/queue", "value": "default"}
    consent = msgspec.json.decode(answer("u1", mutated([operation])))["response"]
    assert (consent["uid"], consent["allowed"], consent["patchType"]) == ("u1", True, "JSONPatch")
    assert msgspec.json.decode(base64.b64decode(consent["patch"])) == [operation]
    refusal = msgspec.json.decode(answer("u2", denied("so not", "spec.a")))["response"]
    assert (refusal["allowed"], refusal["status"]["message"]) == (False, "so not")
    assert refusal["status"]["details"]["causes"][0]["field"] == "spec.a"
