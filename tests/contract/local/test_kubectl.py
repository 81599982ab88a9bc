"""kubectl of the same release works on the embedded API server, or is told what does not."""

import json

import pytest

pytestmark = pytest.mark.timeout(900)

CREATED = {
    "namespace": ("create", "namespace", "made"),
    "configmap": ("create", "configmap", "made", "--from-literal=key=value"),
    "secret": ("create", "secret", "generic", "made", "--from-literal=key=value"),
    "quota": ("create", "quota", "made", "--hard=cpu=4,pods=10"),
    "serviceaccount": ("create", "serviceaccount", "made"),
    "priorityclass": ("create", "priorityclass", "made", "--value=10", "--description=test"),
    "pdb": ("create", "pdb", "made", "--selector=app=x", "--min-available=1"),
    "service": ("create", "service", "clusterip", "made", "--tcp=80:8080"),
    "job": ("create", "job", "made", "--image=busybox"),
    "role": ("create", "role", "made", "--verb=get", "--resource=pods"),
    "rolebinding": ("create", "rolebinding", "made", "--role=made", "--user=someone"),
    "clusterrole": ("create", "clusterrole", "made", "--verb=get", "--resource=nodes"),
    "clusterrolebinding": (
        "create",
        "clusterrolebinding",
        "made",
        "--clusterrole=made",
        "--user=u",
    ),
}
KEPT = {
    "configmap": ("data", {"key": "value"}),
    "secret": ("data", {"key": "dmFsdWU="}),
    "quota": ("spec", {"hard": {"cpu": "4", "pods": "10"}}),
    "priorityclass": ("value", 10),
    "pdb": ("spec", {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}),
    "role": ("rules", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]),
}


@pytest.mark.parametrize("kind", CREATED)
def test_an_object_is_created_read_and_deleted(ctl, kind):
    made = ctl(*CREATED[kind])
    assert (made.returncode, made.stderr) == (0, "")
    again = ctl(*CREATED[kind])
    assert "already exists" in again.stderr
    shown = ctl("get", kind, "made", "-o", "json")
    found = json.loads(shown.stdout)
    if kind in KEPT:
        field, value = KEPT[kind]
        assert found[field] == value
    assert ctl("describe", kind, "made").returncode == 0
    gone = ctl("delete", kind, "made", "--grace-period=0", "--force")
    assert gone.returncode == 0, gone.stderr


def test_a_node_is_drained_of_its_pods(ctl):
    ctl("run", "drained", "--image=busybox", '--overrides={"spec": {"nodeName": "node-1"}}')
    assert ctl("wait", "pod/drained", "--for=condition=Ready", "--timeout=20s").returncode == 0
    drained = ctl("drain", "node-1", "--force", "--grace-period=0", "--timeout=20s")
    assert drained.returncode == 0, drained.stderr
    assert "pod/drained evicted" in drained.stdout
    assert "NotFound" in ctl("get", "pod", "drained").stderr
    assert ctl("uncordon", "node-1").returncode == 0


@pytest.mark.parametrize(
    "words",
    [("logs", "fake"), ("exec", "fake", "--", "ls"), ("attach", "fake"), ("cp", "fake:/a", "a")],
    ids=lambda words: words[0],
)
def test_what_needs_a_program_says_that_none_runs(ctl, words):
    ctl("run", "fake", "--image=busybox", '--overrides={"spec": {"nodeName": "node-0"}}')
    assert ctl("wait", "pod/fake", "--for=condition=Ready", "--timeout=20s").returncode == 0
    refused = ctl(*words)
    assert refused.returncode != 0
    assert "pod fake runs on a fake node: no program was started" in refused.stderr


UNSERVED = {
    "Deployment": ("apps/v1", "deployments.apps"),
    "CronJob": ("batch/v1", "cronjobs.batch"),
    "Ingress": ("networking.k8s.io/v1", "ingresses.networking.k8s.io"),
}


@pytest.mark.parametrize("kind", UNSERVED)
@pytest.mark.parametrize("verb", ["apply", "create"])
def test_a_kind_that_is_not_served_is_named(ctl, verb, kind):
    version, name = UNSERVED[kind]
    manifest = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": {}}
    refused = ctl(verb, "-f", "-", stdin=json.dumps(manifest))
    assert refused.returncode != 0
    assert f"the embedded API server of Pumice does not serve {name}" in refused.stderr


def test_a_kind_that_nobody_knows_is_not_called_unserved(ctl):
    manifest = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}}
    refused = ctl("apply", "-f", "-", stdin=json.dumps(manifest))
    assert 'no matches for kind "Thing" in version "example.com/v1"' in refused.stderr
