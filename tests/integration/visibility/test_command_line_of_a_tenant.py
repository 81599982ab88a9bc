"""`pumice why`, `when` and the others by a user of one namespace, on the real API server."""

import asyncio
import json
import sys
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from pumice.queries.client import ClusterTarget, QueryClient
from pumice.queries.refresh import RefreshTimes
from tests.integration.deploy.tenants import tenant
from tests.support import pages
from tests.support.answers import FixedAnswers, costly, explained, lived, pending, tree
from tests.support.api import Api
from tests.support.goprograms import at_a_terminal

pytestmark = pytest.mark.asyncio(loop_scope="session")

Run = Callable[..., Awaitable[tuple[int, str, str]]]
JOB = "{kind: Job, metadata: {name: j%s}, spec: {queue: q, tasks: [{name: t, replicas: 2}]}}"
FOREIGN = ("hidden-place", "secret")
"""Namespace and job of others: no output of the tenant's names them."""


@pytest_asyncio.fixture(loop_scope="session")
async def run(
    told: FixedAnswers, control_plane: ControlPlane, api: Api, tmp_path: Path, request
) -> AsyncIterator[Run]:
    """`await run("why")`: exit code, stdout and stderr of the tenant's own command line."""
    mine, theirs = f"cli-{zlib.crc32(request.node.name.encode())}", FOREIGN[0]
    told.jobs = [pending(theirs, FOREIGN[1]), pending(mine, "train", position=2)]
    told.queues = [tree("default")]
    told.explanations = {
        (mine, "train"): explained(mine, "train", held_in=[mine, theirs, theirs]),
        FOREIGN: explained(*FOREIGN, held_in=[theirs]),
    }
    told.timelines = {(mine, "train"): lived(mine, "train"), FOREIGN: lived(*FOREIGN)}
    told.verdict = costly(mine, theirs)
    async with tenant(control_plane, api, mine, tmp_path):

        async def run(*words: str, stdin: str = "") -> tuple[int, str, str]:
            done = await asyncio.to_thread(
                at_a_terminal,
                ["pumice", *words],
                programs=Path(sys.executable).parent,
                cwd=pages.ROOT,
                stdin=stdin,
                KUBECONFIG=str(tmp_path / f"{mine}.kubeconfig"),
                XDG_STATE_HOME=str(tmp_path),  # without a local cluster in the usual place
            )
            return done.returncode, done.stdout, done.stderr

        def in_mine(*words: str, **more: str) -> Awaitable[tuple[int, str, str]]:
            return run(*words, *(() if "-n" in words else ("-n", mine)), **more)

        yield in_mine


async def test_answers_about_an_own_job_count_what_is_of_others_and_do_not_name_it(run: Run):
    for words, says in (
        (("why",), "train"),
        (("why", "train"), "and 2 in namespaces that you may not see"),
        (("why", "train", "-o", "json"), '"hiddenHolders": 2'),
        (("why", "-o", "wide"), "train"),
        (("when",), "train"),
        (("timeline", "train"), "Created"),
        (("timeline", "train", "-o", "yaml"), "Created"),
    ):
        code, out, err = await run(*words)
        assert (code, err) == (0, ""), words
        assert says in out, words
        assert FOREIGN[0] not in out, words
        assert FOREIGN[1] not in out, words
    code, out, _ = await run("when", "train")
    assert code == 3
    assert "train: not known" in out


async def test_a_what_if_counts_evictions_of_others_and_does_not_name_them(run: Run):
    code, out, err = await run("what-if", "-f", "-", stdin=JOB % "")
    assert (code, err) == (0, "")
    assert "starts now" in out
    assert "and 2 in namespaces that you may not see" in out
    assert FOREIGN[0] not in out
    whole = json.loads((await run("what-if", "-f", "-", "-o", "json", stdin=JOB % ""))[1])
    assert whole["status"]["hidden"] == 2
    assert FOREIGN[0] not in json.dumps(whole)


async def test_each_thing_that_is_not_allowed_is_one_line_with_a_hint(run: Run):
    theirs = "/".join(FOREIGN)
    in_theirs = f'in the namespace "{FOREIGN[0]}"; the ClusterRole view'
    for words, says in (
        (("why", theirs), in_theirs),
        (("why", "-n", FOREIGN[0]), in_theirs),
        (("why", f"{FOREIGN[0]}/none-such"), in_theirs),
        (("when", theirs, "-o", "json"), in_theirs),
        (("timeline", theirs), in_theirs),
        (("why", "-A"), "at the cluster scope; ask about one namespace, without -A"),
        (("when", "-A", "-o", "name"), "at the cluster scope; ask about one namespace, without -A"),
        (("queue", "line", "default"), "at the cluster scope; a ClusterRoleBinding to view"),
        (("queue", "line", "none-such"), "at the cluster scope; a ClusterRoleBinding to view"),
        (("queue", "tree"), "at the cluster scope; a ClusterRoleBinding to view"),
        (("what-if", "--drain", "n"), "at the cluster scope; the ClusterRole pumice-visibility-pl"),
    ):
        await refused(run, words, says)
    job = {"stdin": JOB % f", namespace: {FOREIGN[0]}"}
    await refused(run, ("what-if", "-f", "-"), "is not the namespace of the request", **job)
    await refused(run, ("what-if", "-n", FOREIGN[0], "-f", "-"), "the ClusterRole edit", **job)
    await refused(run, ("why", "trian"), "did you mean train?")
    await refused(run, ("why", "secret"), "see `pumice why -n ")


async def refused(run: Run, words: tuple[str, ...], says: str, **more: str) -> None:
    """A refusal is one line, and tells of the job of others no more than the user asked."""
    code, out, err = await run(*words, **more)
    assert (code, out) == (1, ""), (words, err)
    assert err.startswith("error: "), words
    assert err.count("\n") == 1, err
    assert says in err, err
    assert FOREIGN[1] not in err or FOREIGN[1] in " ".join(words), err


async def test_a_watch_of_the_own_namespace_tells_of_its_changes_and_that_of_another_is_refused(
    run: Run, told: FixedAnswers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (kubeconfig,) = tmp_path.glob("*.kubeconfig")
    asker = await QueryClient.open(
        ClusterTarget(kubeconfig=str(kubeconfig), namespace=kubeconfig.stem)
    )
    before = await asker.pending()
    own, foreign = (
        RefreshTimes(asker, asker.pending_target()),
        RefreshTimes(asker, asker.pending_target("/".join(FOREIGN))),
    )
    told.jobs = [pending(FOREIGN[0], "another"), pending(kubeconfig.stem, "later")]
    async with asyncio.timeout(30):
        await own.next(before)
        assert b"later" in await asker.pending()
    assert capsys.readouterr().err == ""
    await foreign.next(before)
    assert "forbidden" in capsys.readouterr().err
    own.close()
    foreign.close()
    await asker.close()
