"""Commands run in this process, on a cluster of fixed answers and at a fixed time."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from pumice.cli.main import main
from pumice.queries import client
from shared.api.time import parse
from tests.support.answers import AnswersTransport
from tests.unit.queries.cluster import NOW, fixed_answers

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch, tmp_path) -> AnswersTransport:
    """The cluster that commands find."""
    found = AnswersTransport(fixed_answers())
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "current-context: here\n"
        "contexts: [{name: here, context: {cluster: c, user: u}},"
        " {name: team, context: {cluster: c, user: u, namespace: team}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://cluster.example:6443'}}]\n"
        "users: [{name: u}]\n"
    )

    async def connect(*_: object, **__: object) -> AnswersTransport:
        return found

    monkeypatch.setattr(client, "open_transport", connect)
    monkeypatch.setattr(client, "_local", lambda: "")
    clock = SimpleNamespace(time=lambda: parse(NOW))
    monkeypatch.setattr("pumice.queries.output.time", clock)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    return found


@pytest.fixture
def run(way: AnswersTransport, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("why", "train")`: exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = main(words)
        except SystemExit as end:  # argparse ends the process for wrong usage
            code = int(end.code or 0)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run
