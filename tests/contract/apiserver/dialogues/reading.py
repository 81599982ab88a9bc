"""Lists, selectors, pages, watches, tables, and the server itself."""

from tests.contract.apiserver.dialogue import TABLE, Ask
from tests.contract.apiserver.dialogues.bodies import (
    CORE,
    JOBS,
    MAPS,
    MERGE,
    ONE_POD,
    POD_UP,
    PODS,
    Case,
    binding,
    config,
    plain_pod,
    sparse_job,
)

_THREE = [Ask("POST", MAPS, config(n, {"labels": {"n": n}}), keep="code") for n in "abc"]


def _select(label: str = "", field: str = "") -> Ask:
    query = {"labelSelector": label, "fieldSelector": field}
    return Ask("GET", MAPS, query={k: v for k, v in query.items() if v}, keep="names")


READING: dict[str, Case] = {
    "a list has a kind": [Ask("GET", f"{MAPS}?labelSelector=n%3Dnone")],
    **{
        f"labels select by {words}": [*_THREE, _select(label=words)]
        for words in ("n=a", "n==b", "n!=a", "n in (a,c)", "n notin (a,b)", "n", "!n", "n,n!=a")
    },
    **{
        f"fields select by {words}": [*_THREE, _select(field=words)]
        for words in ("metadata.name=a", "metadata.name!=a", "metadata.name=a,metadata.name=b")
    },
    "an unknown field selects nothing": [
        Ask("GET", MAPS, query={"fieldSelector": "data.k=v"}, keep="code")
    ],
    "a bad selector is refused": [Ask("GET", MAPS, query={"labelSelector": "a=b=c"}, keep="code")],
    "pods are selected by node": [
        POD_UP,
        Ask("POST", PODS, plain_pod("q"), keep="code"),
        Ask("POST", f"{ONE_POD}/binding", binding(), keep="code"),
        Ask("GET", PODS, query={"fieldSelector": "spec.nodeName=nowhere-{ns}"}, keep="names"),
        Ask("GET", PODS, query={"fieldSelector": "spec.nodeName="}, keep="names"),
        Ask("GET", PODS, query={"fieldSelector": "status.phase!=Pending"}, keep="names"),
    ],
    "lists come in pages": [
        *_THREE,
        Ask("GET", MAPS, query={"limit": "2"}, keep="names"),
        Ask("GET", MAPS, query={"limit": "2"}, keep="metadata.remainingItemCount"),
        Ask("GET", MAPS, query={"limit": "2", "continue": "{go.list}"}, keep="names"),
    ],
    "pages show one version": [
        *_THREE,
        Ask("GET", MAPS, query={"limit": "1"}, keep="names"),
        Ask("DELETE", f"{MAPS}/c", keep="code"),
        Ask("POST", MAPS, config("bb"), keep="code"),
        Ask("GET", MAPS, query={"limit": "9", "continue": "{go.list}"}, keep="names"),
    ],
    "a bad page is refused": [Ask("GET", MAPS, query={"continue": "nonsense"}, keep="code")],
    "a version of the future is refused": [
        Ask("GET", MAPS, query={"resourceVersion": "99999999"}, keep="code")
    ],
    "a list at any version": [
        *_THREE,
        Ask("GET", MAPS, query={"resourceVersion": "0"}, keep="code"),
    ],
    "a match needs a version": [
        Ask("GET", MAPS, query={"resourceVersionMatch": "Exact"}, keep="code")
    ],
    "an exact list is of the past": [
        Ask("POST", MAPS, config("a"), keep="code"),
        Ask("POST", MAPS, config("b"), keep="code"),
        Ask(
            "GET",
            MAPS,
            query={"resourceVersion": "{rv.a}", "resourceVersionMatch": "Exact"},
            keep="names",
        ),
    ],
    "a watch without a version begins with the state": [
        *_THREE,
        Ask("GET", MAPS, query={"watch": "1", "labelSelector": "n"}, events=3),
    ],
    "a watch from a version goes on after it": [
        *_THREE,
        Ask("GET", MAPS, query={"watch": "1", "resourceVersion": "{rv.a}"}, events=2),
    ],
    "a watch tells of a delete": [
        *_THREE,
        Ask("DELETE", f"{MAPS}/a", keep="code"),
        Ask("GET", MAPS, query={"watch": "1", "resourceVersion": "{rv.c}"}, events=1),
    ],
    "a watch tells what leaves and enters its view": [
        *_THREE,
        Ask("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"n": "z"}}}, MERGE, keep="code"),
        Ask("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"n": "a"}}}, MERGE, keep="code"),
        Ask("PATCH", f"{MAPS}/a", {"data": {"k": "v"}}, MERGE, keep="code"),
        Ask(
            "GET",
            MAPS,
            query={"watch": "1", "resourceVersion": "{rv.c}", "labelSelector": "n=a"},
            events=3,
        ),
    ],
    "a watch of one name": [
        *_THREE,
        Ask("GET", MAPS, query={"watch": "1", "fieldSelector": "metadata.name=b"}, events=1),
    ],
    "a watch streams the list": [
        *_THREE,
        Ask(
            "GET",
            MAPS,
            query={
                "watch": "1",
                "sendInitialEvents": "true",
                "resourceVersionMatch": "NotOlderThan",
                "allowWatchBookmarks": "true",
                "labelSelector": "n",
            },
            events=4,
        ),
    ],
    "a streamed list needs its match": [
        Ask("GET", MAPS, query={"watch": "1", "sendInitialEvents": "true"}, keep="head")
    ],
    "a match needs a streamed list": [
        Ask(
            "GET",
            MAPS,
            query={"watch": "1", "resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"},
            keep="code",
        )
    ],
    "a streamed list of a custom kind": [
        Ask("POST", JOBS, sparse_job(), keep="code"),
        Ask(
            "GET",
            JOBS,
            query={
                "watch": "true",
                "sendInitialEvents": "true",
                "resourceVersionMatch": "NotOlderThan",
                "allowWatchBookmarks": "true",
            },
            events=2,
        ),
    ],
    "a collection is deleted by label": [
        *_THREE,
        Ask("DELETE", MAPS, query={"labelSelector": "n in (a,b)"}, keep="code"),
        Ask("GET", MAPS, query={"labelSelector": "n"}, keep="names"),
    ],
    "all namespaces are listed": [
        Ask("POST", MAPS, config("m", {"labels": {"of": "{ns}"}}), keep="code"),
        Ask("GET", f"{CORE}/configmaps", query={"labelSelector": "of={ns}"}, keep="names"),
    ],
    "an unknown kind is not found": [
        Ask("GET", "/apis/example.com/v1/things", keep="code"),
        Ask("GET", "/apis/batch.volcano.sh/v1alpha1/things", keep="code"),
        Ask("GET", "/nothing", keep="code"),
    ],
    "the server is ready": [
        *(Ask("GET", f"/{name}", keep="code") for name in ("readyz", "healthz", "livez"))
    ],
    "the server has a version": [Ask("GET", "/version", keep="major")],
    "pods are shown as a table": [
        POD_UP,
        Ask("GET", ONE_POD, accept=TABLE, query={"includeObject": "None"}, keep="kind"),
    ],
    "a job is shown as a table": [
        Ask("POST", JOBS, sparse_job(), keep="code"),
        Ask("GET", f"{JOBS}/j", accept=TABLE, query={"includeObject": "None"}, keep="kind"),
    ],
}
