"""What the demo says in the end: commands that can be typed as they stand."""

from pathlib import Path

import pytest

from pumice.demo.run import next_steps, program_name


def test_the_commands_are_those_of_the_program_that_was_called() -> None:
    lines = next_steps("embedded", ".venv/bin/pumice")
    assert lines[2] == (
        "  .venv/bin/pumice up               keeps such a cluster for work (kubectl works on it)"
    )
    assert lines[-1].endswith("the same on the real parts: .venv/bin/pumice demo --api real")


@pytest.mark.parametrize("is_on_path", [False, True])
def test_a_program_that_is_not_on_path_is_called_by_its_path(
    is_on_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / ".venv" / "bin" / "pumice"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent) if is_on_path else str(tmp_path))
    monkeypatch.chdir(tmp_path)
    wanted = "pumice" if is_on_path else ".venv/bin/pumice"
    assert program_name(str(program)) == wanted
