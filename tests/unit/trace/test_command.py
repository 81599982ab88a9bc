"""The names that `pumice trace` and `pumice events --job` take."""

import argparse
from pathlib import Path

import pytest
import yaml

from pumice.cli import events, trace
from pumice.local.errors import LocalError


def named(folder: Path, *words: str) -> tuple[str, str]:
    """Return namespace and name of the job of a command, with a context in namespace `team-a`."""
    file = folder / "kubeconfig"
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [
            {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}}
        ],
        "current-context": "x",
    }
    file.write_text(yaml.safe_dump(content))
    parser = argparse.ArgumentParser()
    trace.add_arguments(parser, {})
    args = parser.parse_args([*words, "--kubeconfig", str(file), "--data-dir", str(folder)])
    return trace.named(args, {})


def test_a_job_without_a_namespace_is_in_that_of_the_context(tmp_path: Path) -> None:
    assert named(tmp_path, "train") == ("team-a", "train")
    assert named(tmp_path, "train", "-n", "other") == ("other", "train")
    assert named(tmp_path, "other/train") == ("other", "train")
    with pytest.raises(LocalError, match="is not in namespace team-b"):
        named(tmp_path, "other/train", "-n", "team-b")


def test_events_of_a_job_are_asked_for_by_its_name_alone_or_with_its_namespace() -> None:
    for wanted, is_about in (("", True), ("train", True), ("ns/train", True)):
        assert events.is_about(wanted, "ns/train") is is_about
    for wanted in ("rain", "ns/rain", "other/train", "ns/train-2"):
        assert not events.is_about(wanted, "ns/train")
