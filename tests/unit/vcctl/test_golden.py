"""vcctl and Slurm's names print what Volcano's programs print.

The golden files hold what both printed when `make vcctl-check` compared them; of the stories also
the requests, and what an API server answered.
"""

import json
import time

import pytest

from tests.unit.vcctl import lines, ours, world

GOLDEN = lines.GOLDEN
WORDS = json.loads((GOLDEN / "words.json").read_text("utf-8"))
READS = json.loads((GOLDEN / "reads.json").read_text("utf-8"))
KUBECONFIGS = json.loads((GOLDEN / "kubeconfigs.json").read_text("utf-8"))
STORIES = json.loads((GOLDEN / "stories.json").read_text("utf-8"))


def shown(entry: dict) -> str:
    return repr(entry["line"])


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def ended(recorded: dict) -> ours.Ended:
    return ours.Ended(recorded["out"], recorded["err"], recorded["code"])


def test_every_line_of_a_story_has_its_golden_output():
    assert set(STORIES) == set(lines.STORIES)
    for name, entries in STORIES.items():
        found = [line.strip() for line in lines.STORIES[name]]
        own = [line for line in found if "KUBECONFIG" not in line]
        shown = [line for line in own if not {"-k", "-s"} & set(line.split())]
        assert [entry["line"].strip() for entry in entries] == shown


@pytest.mark.parametrize("entry", WORDS, ids=shown)
def test_help_and_wrong_usage_are_in_volcanos_words(entry):
    assert ours.run(entry["line"]) == ended(entry)


@pytest.mark.parametrize("entry", READS["lines"], ids=shown)
def test_what_is_there_is_shown_in_volcanos_layout(entry):
    transport = world.WorldTransport(READS["now"])
    assert ours.run(entry["line"], transport, now_s=entry["at"]) == ended(entry)


@pytest.mark.parametrize("name", STORIES)
def test_a_story_is_told_as_by_volcano_with_the_same_requests(name):
    for entry in STORIES[name]:
        environ, line = ours.words(entry["line"])
        replay = ours.Replay(entry["asked"])
        found = ours.run(line, replay, now_s=entry["at"], environ=environ, folder=lines.FILES)
        assert found == ended(entry), line
        assert replay.left == [], line


@pytest.mark.parametrize("entry", KUBECONFIGS, ids=lambda e: f"{e['case']}: {e['line']}")
def test_a_kubeconfig_that_leads_nowhere_is_refused_in_volcanos_words(entry, tmp_path):
    (tmp_path / "config.yaml").write_text(entry["config"])
    environ = {"HOME": str(tmp_path)}
    line = entry["line"].split()
    assert ours.run(line, environ=environ, folder=tmp_path) == ended(entry)
