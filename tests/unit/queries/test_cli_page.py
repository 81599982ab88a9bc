"""Each line of docs/cli.md does what the page says, and start-up stays short."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pumice.cli.completion import candidates
from pumice.cli.main import COMMANDS, main
from tests.support import pages
from tests.unit.queries.conftest import Run

PAGE = pages.ROOT / "docs" / "cli.md"
PROGRAMS = Path(sys.executable).parent
SHELL = """\
source <(pumice completion bash)
COMP_WORDS=(pumice {words})
COMP_CWORD={at}
_pumice
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def lines(heading: str) -> list[str]:
    return [c for block in pages.blocks(PAGE) if block.heading == heading for c in block.commands]


@pytest.mark.parametrize("line", lines("Questions"))
def test_each_question_of_the_page_is_answered(run: Run, line: str) -> None:
    code, out, err = run(*shlex.split(line)[1:])
    wanted = 3 if line == "pumice when team/other" else 0
    assert (code, err) == (wanted, "")
    assert out


def test_the_explanation_on_the_page_is_the_one_that_is_printed(run: Run) -> None:
    assert run("why", "train")[1] in PAGE.read_text("utf-8")


@pytest.mark.parametrize("line", lines("As a plugin of kubectl"))
def test_a_plugin_of_kubectl_gives_the_same_answers(
    run: Run, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = shlex.split(line)[2:]
    own = run(*words)
    monkeypatch.setattr(sys, "argv", [str(PROGRAMS / "kubectl-pumice")])
    assert run(*words) == own
    assert run("why", "--help")[1].startswith("usage: kubectl pumice why")


def test_the_plugin_and_its_completion_are_programs() -> None:
    done = subprocess.run(
        [PROGRAMS / "kubectl_complete-pumice", "queue", "l"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout == "line\n:4\n"
    assert (PROGRAMS / "kubectl-pumice").exists()


@pytest.mark.parametrize("line", lines("Completion"))
def test_bash_completes_by_the_line_of_the_page(line: str) -> None:
    assert line == "source <(pumice completion bash)"
    for words, wanted in (("wh", {"why", "when", "what-if"}), ("queue tr", {"tree"})):
        script = SHELL.format(words=words, at=len(words.split()))
        done = subprocess.run(
            ["bash", "-c", script],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
            env={**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"},
        )
        assert set(done.stdout.split()) == wanted


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_one_that_it_can_read(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "pumice __complete" in script
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, check=True, timeout=30)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["tim"], ["timeline"]),
        (["queue", ""], ["tree", "line"]),
        (["queue", "line", ""], ["idle", "research", "root"]),
        (["why", ""], ["train", "tune"]),
        (["why", "-n", "team", ""], ["other"]),
        (["why", "-A", "t"], ["team/other"]),
        (["why", "team/"], ["team/other"]),
        (["when", "-n", "default", "team/o"], ["team/other"]),
        (["timeline", "-n", "team", ""], ["other", "big"]),
        (["timeline", "team/b"], ["team/big"]),
        (["what-if", "--drain", "node-"], ["node-0", "node-1", "node-2", "node-3"]),
        (["what-if", "--add-nodes", "1", "--like", "node-3"], ["node-3"]),
        (["top", "-n", ""], ["default", "team"]),
        (["queue", "tree", "-n", "t"], ["team"]),
        (["why", "train", ""], []),
        (["why", "-o", "y"], ["yaml"]),
        (["why", "--wa"], ["--watch"]),
        (["what-if", "-f", ""], []),
        (["completion", "f"], ["fish"]),
        (["no-such", ""], []),
    ],
    ids=str,
)
def test_what_may_follow_is_known(run: Run, words: list[str], wanted: list[str]) -> None:
    assert sorted(run("__complete", *words)[1].split()) == sorted(wanted)


def test_candidates_are_silent_without_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["__complete", "why", "--kubeconfig", "none-such", ""]) == 0
    assert capsys.readouterr().out.split() == []
    assert candidates([], tuple(COMMANDS), lambda _: pytest.fail("no command is named")) == list(
        COMMANDS
    )


@pytest.mark.parametrize("line", [["pumice", "completion", "bash"], ["vcctl", "--help"]], ids=str)
def test_a_reader_that_is_gone_ends_a_program_silently(line: list[str]) -> None:
    program = subprocess.Popen(
        [PROGRAMS / line[0], *line[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert program.stdout is not None
    program.stdout.close()
    _, err = program.communicate(timeout=30)
    assert (program.returncode, err) == (141, b"")
