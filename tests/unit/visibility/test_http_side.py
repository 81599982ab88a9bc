"""Users, rights, forms and documents of the aggregated API, without a server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from services.visibility.api import discovery, hiding, openapi, requests, rights, tables
from services.visibility.api.requests import ReplyForm
from services.visibility.api.resources import CHANGES, RESOURCES, find
from services.visibility.api.statuses import ApiFailure
from services.visibility.api.users import RequestHeaders, User, from_config_map, read_user
from shared.api.time import parse
from shared.api.visibility import (
    API_VERSION,
    EvictedPod,
    ExpectedStart,
    LosingJob,
    WhatIfStatus,
)
from shared.api.whatifs import WhatIf, WhatIfSpec
from tests.support.answers import costly, explained, lived, pending, tree

HEADERS = RequestHeaders(authorities="PEM", allowed_names=("front-proxy",))
NOW = 1_767_225_600.0  # 2026-01-01
KUBECTL = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,"
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)


def user_of(given: dict[str, list[str]], names: list[str] | None, headers=HEADERS) -> User:
    lowered = {name.lower(): values for name, values in given.items()}
    return read_user(
        headers, names, values=lambda name: lowered.get(name.lower(), []), names=list(given)
    )


def refused(code: int):
    return pytest.raises(ApiFailure, check=lambda failure: failure.code == code)


@pytest.mark.parametrize("names", [None, [], ["another"]])
def test_a_caller_without_the_front_proxys_certificate_is_unknown(names):
    with refused(401):
        user_of({"X-Remote-User": ["admin"]}, names)


def test_a_front_proxy_that_names_no_user_is_refused():
    with refused(401):
        user_of({"X-Remote-Group": ["system:masters"]}, ["front-proxy"])


def test_a_user_has_his_groups_and_what_else_is_known():
    given = {
        "X-Remote-User": ["ann"],
        "X-Remote-Uid": ["7"],
        "X-Remote-Group": ["dev", "ops"],
        "X-Remote-Extra-Scopes%2fone": ["a", "b"],
    }
    found = user_of(given, ["front-proxy"])
    assert (found.name, found.uid) == ("ann", "7")
    assert found.groups == ("dev", "ops", "system:authenticated")
    assert found.extra == (("scopes/one", ("a", "b")),)


def test_one_who_is_not_known_does_not_become_known():
    given = {"X-Remote-User": ["system:anonymous"], "X-Remote-Group": ["system:unauthenticated"]}
    assert user_of(given, ["front-proxy"]).groups == ("system:unauthenticated",)


def test_the_config_map_names_headers_and_authority():
    data = {
        "requestheader-client-ca-file": "PEM",
        "requestheader-allowed-names": '["a"]',
        "requestheader-username-headers": '["X-Who"]',
    }
    found = from_config_map(data)
    assert (found.allowed_names, found.name_headers) == (("a",), ("X-Who",))
    assert found.group_headers == ("X-Remote-Group",)
    with pytest.raises(ValueError, match="requestheader-client-ca-file"):
        from_config_map({})
    with pytest.raises(ValueError, match="requestheader-allowed-names is no list"):
        from_config_map({**data, "requestheader-allowed-names": "a"})


@pytest.mark.parametrize(
    ("method", "path", "verb", "plural"),
    [
        ("GET", "pendingjobs", "list", "pendingjobs"),
        ("GET", "namespaces/n/pendingjobs", "list", "pendingjobs"),
        ("GET", "namespaces/n/pendingjobs/j", "get", "pendingjobs"),
        ("GET", "namespaces/n/pendingjobs?watch=true", "watch", "pendingjobs"),
        ("GET", "queues/q/pendingjobs", "get", "queues/pendingjobs"),
        ("POST", "namespaces/n/whatifs", "create", "whatifs"),
        ("DELETE", "namespaces/n/pendingjobs/j", "delete", "pendingjobs"),
        ("PATCH", "queuetrees/q", "patch", "queuetrees"),
    ],
)
def test_a_path_names_verb_and_resource(method, path, verb, plural):
    path, _, query = path.partition("?")
    target = requests.read(method, requests.ROOT + path, dict([query.split("=")] if query else []))
    assert (target.verb, target.resource.plural) == (verb, plural)
    right = rights.of_target(target)
    assert "/".join(filter(None, (right.resource, right.subresource))) == plural


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("nothing", 404),
        ("namespaces/n/queuetrees", 404),
        ("namespaces/n/pendingjobs/j/status", 404),
        ("namespaces//pendingjobs", 404),
        ("queues/q/pendingjobs/x", 404),
        ("pendingjobs?labelSelector=a=b", 400),
    ],
)
def test_a_path_that_is_not_served_is_refused(path, code):
    path, _, query = path.partition("?")
    with refused(code):
        requests.read("GET", requests.ROOT + path, dict([query.split("=", 1)] if query else []))


def test_objects_are_selected_by_name_and_by_no_other_field():
    def chosen(selector: str) -> list[str]:
        target = requests.read("GET", f"{requests.ROOT}pendingjobs", {"fieldSelector": selector})
        jobs = [pending("n", "a"), pending("m", "b")]
        return [job.metadata.name for job in jobs if target.selects(job.metadata)]

    assert chosen("metadata.name=a") == ["a"]
    assert chosen("metadata.name!=a") == ["b"]
    assert chosen("metadata.namespace==m,metadata.name=b") == ["b"]
    with refused(400):
        chosen("spec.queue=q")


def test_a_watch_of_a_name_selects_that_object_alone():
    def chosen(path: str, query: dict[str, str]) -> list[str]:
        target = requests.read("GET", requests.ROOT + path, {"watch": "true", **query})
        jobs = [pending("n", "a"), pending("n", "b")]
        return [job.metadata.name for job in jobs if target.selects(job.metadata)]

    assert chosen("namespaces/n/pendingjobs", {}) == ["a", "b"]
    assert chosen("namespaces/n/pendingjobs/a", {}) == ["a"]
    assert chosen("namespaces/n/pendingjobs/a", {"fieldSelector": "metadata.name=b"}) == []


def test_kubectl_gets_tables_programs_get_objects_and_others_are_refused():
    assert requests.form_of(KUBECTL) is ReplyForm.TABLE
    assert requests.form_of("application/json") is ReplyForm.OBJECT
    assert requests.form_of("") is ReplyForm.OBJECT
    assert requests.form_of("application/vnd.kubernetes.protobuf, */*") is ReplyForm.OBJECT
    with refused(406):
        requests.form_of("application/vnd.kubernetes.protobuf")


def test_aggregated_discovery_is_given_only_when_it_is_wanted_first():
    wanted = discovery.AGGREGATED
    assert requests.wants_aggregated(f"{wanted},application/json")
    assert not requests.wants_aggregated(f"application/json,{wanted}")
    assert not requests.wants_aggregated("application/json")


def test_both_forms_of_discovery_name_the_same_resources():
    listed = {entry["name"]: entry["verbs"] for entry in discovery.resources()["resources"]}
    ((version,),) = (item["versions"] for item in discovery.aggregated()["items"])
    aggregated = {}
    for entry in version["resources"]:
        if entry["verbs"]:
            aggregated[entry["resource"]] = entry["verbs"]
        for sub in entry.get("subresources", ()):
            aggregated[f"{entry['resource']}/{sub['subresource']}"] = sub["verbs"]
    assert aggregated == listed == {r.plural: list(r.verbs) for r in RESOURCES}


@pytest.mark.parametrize(("made", "root"), [(openapi.v2, "definitions"), (openapi.v3, "schemas")])
def test_each_reference_of_a_document_leads_somewhere(made, root):
    document = made()
    known = document["definitions"] if root == "definitions" else document["components"]["schemas"]

    def references(value):
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"].rpartition("/")[2]
            for item in value.values():
                yield from references(item)
        elif isinstance(value, list):
            for item in value:
                yield from references(item)

    found = set(references(document))
    assert found
    assert found <= known.keys()


SWAGGER_SCHEMA = {
    *("$ref", "format", "title", "description", "default", "multipleOf", "maximum"),
    *("exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength", "pattern"),
    *("maxItems", "minItems", "uniqueItems", "maxProperties", "minProperties", "required", "enum"),
    *("additionalProperties", "type", "items", "allOf", "properties", "discriminator", "readOnly"),
    *("xml", "externalDocs", "example"),
}
"""What a Schema Object of OpenAPI 2.0 may have beside `x-…`."""


def words_of_schema(schema: dict[str, Any]) -> Iterator[str]:
    """Yield the keywords of a schema and of those in it."""
    yield from schema
    inner = [*schema.get("properties", {}).values(), *schema.get("allOf", ())]
    inner += [schema[word] for word in ("items", "additionalProperties") if word in schema]
    for each in inner:
        if isinstance(each, dict):
            yield from words_of_schema(each)


def test_the_document_of_v2_has_the_words_of_v2_alone():
    """The API server merges it into its own, which it could not encode as protobuf any more."""
    schemas = openapi.v2()["definitions"].values()
    found = {word for schema in schemas for word in words_of_schema(schema)}
    assert {word for word in found if not word.startswith("x-")} <= SWAGGER_SCHEMA
    of_v3 = openapi.v3()["components"]["schemas"].values()
    assert "anyOf" in {word for schema in of_v3 for word in words_of_schema(schema)}


def fields_without_words(schema: dict[str, Any], path: str) -> Iterator[str]:
    """Yield fields that `kubectl explain` tells nothing of, but for those of Job and Queue."""
    for name, field in schema.get("properties", {}).items():
        if not field.get("description"):
            yield f"{path}.{name}"
        if path != "WhatIf.spec" or name not in {"job", "queue"}:
            yield from fields_without_words(field.get("items", field), f"{path}.{name}")


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.name)
def test_each_field_is_explained(resource):
    assert list(fields_without_words(openapi.schema(resource), resource.kind)) == []


def test_a_what_if_may_hold_any_field_of_a_job_and_no_field_that_it_does_not_have():
    what_if = find("whatifs")
    assert what_if is not None
    task = {"name": "t", "replicas": 1, "template": {"spec": {"anything": 1}}, "replica": 2}
    question = {
        "apiVersion": API_VERSION,
        "kind": "WhatIf",
        "metadata": {"name": "w", "labels": {"a": "b"}},
        "spec": {"job": {"metadata": {}, "spec": {"tasks": [task]}}, "drainNode": ["n"]},
    }
    unknown = list(openapi.unknown_fields(question, openapi.schema(what_if)))
    assert unknown == ["spec.job.spec.tasks[0].replica", "spec.drainNode"]


def test_what_is_hidden_is_counted_and_what_is_ones_own_stays():
    found = explained("mine", "a", held_in=["mine", "theirs", "theirs"])
    assert hiding.namespaces(found) == {"mine", "theirs"}
    shown = hiding.hide(found, {"mine"})
    assert [holder.job.namespace for holder in shown.holders] == ["mine"]
    assert shown.hidden_holders == 2
    verdict = hiding.hide(costly("mine", "theirs"), {"mine"})
    assert {pod.namespace for pod in verdict.evictions} == {"mine"}
    assert {delay.job.namespace for delay in verdict.delays} == {"mine"}
    assert verdict.hidden == 2
    assert hiding.hide(WhatIfStatus(starts_now=True), set()).hidden == 0
    losing = [LosingJob(job=delay.job) for delay in costly("mine", "theirs").delays]
    drained = hiding.hide(WhatIfStatus(starts_now=True, losing=tuple(losing)), {"mine"})
    assert ([each.job.namespace for each in drained.losing], drained.hidden) == (["mine"], 1)


def test_a_long_answer_names_what_may_be_seen_and_tells_how_much_more_there_is():
    pods = [EvictedPod(namespace="theirs", name=f"a-{at}") for at in range(hiding.LISTED_MAX)]
    pods += [EvictedPod(namespace="mine", name=f"b-{at}") for at in range(hiding.LISTED_MAX + 7)]
    answer = hiding.hide(WhatIfStatus(starts_now=True, evictions=tuple(pods)), {"mine"})
    assert {pod.namespace for pod in answer.evictions} == {"mine"}
    assert len(answer.evictions) == hiding.LISTED_MAX
    assert answer.hidden == hiding.LISTED_MAX
    assert answer.remaining == {"evictions": 7}
    whole = tables.table(find("whatifs"), [WhatIf(spec=WhatIfSpec(), status=answer)], now=NOW)
    heads = [column["name"] for column in whole["columnDefinitions"]]
    [row] = whole["rows"]
    assert row["cells"][heads.index("Evicts")] == hiding.LISTED_MAX + 7
    few = hiding.hide(WhatIfStatus(starts_now=True, evictions=tuple(pods[:3])), {"theirs"})
    assert (len(few.evictions), few.remaining) == (3, {})


@pytest.mark.parametrize(
    ("ahead_s", "basis", "shown"),
    [(0.4, "history", "now"), (90, "history", "in 1m30s"), (90, "history, default", "in ~1m30s")],
)
def test_a_table_marks_guessed_starts(ahead_s, basis, shown):
    starts = ExpectedStart(median="2026-01-01T00:00:00Z", basis=basis)
    job = replace(pending("a", "b"), expected_start=starts)
    now = parse("2026-01-01T00:00:00Z") - ahead_s
    whole = tables.table(find("pendingjobs"), [job], now=now)
    heads = [column["name"] for column in whole["columnDefinitions"]]
    assert whole["rows"][0]["cells"][heads.index("Start")] == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-3, "0s"),
        (42, "42s"),
        (185, "3m5s"),
        (180, "3m"),
        (1000, "16m"),
        (9000, "2h30m"),
        (5 * 86400, "5d"),
        (400 * 86400, "1y35d"),
    ],
)
def test_a_duration_is_shown_as_kubectl_shows_it(seconds, shown):
    assert tables.age(seconds) == shown


@pytest.mark.parametrize(
    "resource", [r for r in RESOURCES if r.plural != CHANGES], ids=lambda r: r.plural
)
def test_each_kind_of_object_has_a_table(resource):
    table = tables.table(resource, [], now=NOW)
    assert table["columnDefinitions"][0]["name"] == "Name"
    assert table["columnDefinitions"][0]["priority"] == 0


def test_a_timeline_has_a_row_per_entry_and_an_explanation_one_per_gate():
    timelines, explanations = find("timelines"), find("explanations")
    assert timelines is not None
    assert explanations is not None
    rows = tables.table(timelines, [lived("n", "j")], now=NOW)["rows"]
    assert [row["cells"][3] for row in rows] == ["Created", "Waits"]
    assert rows[1]["cells"][2] == "1m15s"
    life = lived("n", "j")
    waits = replace(life.entries[1], seconds=None, goes_on=True)
    rows = tables.table(timelines, [replace(life, entries=(waits,))], now=NOW + 75.0)["rows"]
    assert rows[0]["cells"][2] == ">1m15s"
    rows = tables.table(explanations, [explained("n", "j", held_in=[])], now=NOW)["rows"]
    assert [row["cells"][4] for row in rows] == ["Passed", "Failed"]


def test_a_row_carries_as_much_of_its_object_as_is_asked():
    queues = find("queuetrees")
    assert queues is not None
    shown = {
        include: tables.table(queues, [tree("q")], now=NOW, include=include)["rows"][0]
        for include in ("None", "Metadata", "Object")
    }
    assert "object" not in shown["None"]
    assert shown["Metadata"]["object"]["kind"] == "PartialObjectMetadata"
    assert shown["Object"]["object"]["resources"][0]["allocated"] == "4"
    json.dumps(shown)


def test_a_review_asks_for_exactly_the_right():
    user = User(name="ann", groups=("dev",), extra=(("k", ("v",)),))
    asked = rights.review(user, rights.IMAGINE_CLUSTER)["spec"]
    assert asked["resourceAttributes"] == {
        "group": "visibility.pumice.dev",
        "version": "v1alpha1",
        "verb": "create",
        "resource": "whatifs",
        "subresource": "cluster",
    }
    assert (asked["groups"], asked["extra"]) == (["dev"], {"k": ["v"]})
    path = rights.review(user, rights.of_path("/apis"))["spec"]
    assert path["nonResourceAttributes"] == {"path": "/apis", "verb": "get"}


def test_a_refusal_says_who_may_not_do_what_where():
    user = User(name="ann")
    words = rights.forbidden(user, rights.to_see("n"), "").message
    assert words == (
        'pendingjobs.visibility.pumice.dev is forbidden: User "ann" cannot get resource '
        '"pendingjobs" in API group "visibility.pumice.dev" in the namespace "n"'
    )
    assert rights.forbidden(user, rights.of_path("/apis"), "").code == 403
