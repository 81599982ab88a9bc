"""The command line refuses in one line and explains itself."""

import pytest

from pumice.cli import main as cli
from pumice.local import build


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]], ids=" ".join)
def test_help_lists_every_command(words, capsys):
    assert cli.main(words) == 0
    page = capsys.readouterr().out
    assert all(f"  {name} " in page for name in cli.COMMANDS)


def test_a_slip_in_the_command_is_refused_with_the_nearest_one(capsys):
    assert cli.main(["staus"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: there is no command 'staus' (did you mean status?)")
    assert error.count("\n") == 1


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_each_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: pumice {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status", "--data-dri", "x"], "pumice status: there is no flag --data-dri"),
        (["status", "--data-dri=x"], "(did you mean --data-dir?)"),
        (["down", "now"], "pumice down: unexpected argument 'now'"),
        (["run", "--schedulr-conf=x"], "(did you mean --scheduler-conf?)"),
        (["up", "--kubeconfig-ot=x"], "(did you mean --kubeconfig-out?)"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_an_unknown_argument_is_refused_with_the_nearest_flag(words, said, capsys):
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--kubeconfig", "/nowhere/kubeconfig"], "there is no file /nowhere/kubeconfig"),
        (["run", "--scheduler-conf", "/nowhere/conf"], "there is no file /nowhere/conf"),
        (["run", "--no-such-flag=1"], "there is no flag --no-such-flag"),
    ],
    ids=["kubeconfig", "configuration", "flag"],
)
def test_what_run_cannot_use_is_one_line(words, message, capsys):
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_status_and_down_of_nothing_say_so(tmp_path, capsys):
    assert cli.main(["status", "--data-dir", str(tmp_path)]) == 3
    assert cli.main(["down", "--data-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("nothing runs in") == 2


def test_a_directory_of_somebody_else_is_not_purged(tmp_path, capsys):
    (tmp_path / "precious").write_text("x")
    assert cli.main(["down", "--purge", "--data-dir", str(tmp_path)]) == 1
    assert "was not made by `pumice up`" in capsys.readouterr().err
    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--port", "99999"], "--port: 99999 is no port"),
        (["--data-dir", "/proc/nowhere"], "--data-dir: cannot use /proc/nowhere"),
        (["--data-dir", "/dev/null"], "--data-dir: cannot use /dev/null"),
    ],
    ids=["port", "unwritable", "no-directory"],
)
def test_what_up_cannot_use_is_one_line(words, message, tmp_path, capsys):
    assert cli.main(["up", "--data-dir", str(tmp_path / "cluster"), *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "words", [["--cpu", "lots"], ["--memory", "-1Gi"], ["--nodes", "abc"]], ids=" ".join
)
def test_an_amount_that_is_none_is_refused_by_its_flag(words, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["up", f"{words[0]}={words[1]}"])
    assert ended.value.code == 2
    assert f"argument {words[0]}" in capsys.readouterr().err


def test_missing_programs_are_named_with_where_they_were_looked_for(tmp_path, monkeypatch, capsys):
    for name, value in (
        ("KUBEBUILDER_ASSETS", tmp_path / "assets"),
        ("PATH", tmp_path / "bin"),
        ("XDG_CACHE_HOME", tmp_path / "cache"),
    ):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(build, "WHEEL", "no-such-wheel")
    assert cli.main(["up", "--api", "real", "--data-dir", str(tmp_path / "cluster")]) == 1
    error = capsys.readouterr().err
    assert all(name in error for name in ("kube-apiserver", "etcd", "kwok", "KUBEBUILDER_ASSETS"))
    assert "pip install" in error
    assert error.count("\n") == 1
