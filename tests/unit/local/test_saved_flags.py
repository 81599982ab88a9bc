"""Flags of a local cluster are kept with it: they hold at the next start, and none contradicts."""

import argparse
from pathlib import Path

import pytest
from hypothesis import given as draws
from hypothesis import strategies as st

from pumice.cli import saved_flags, serving, up
from pumice.local.errors import WrongSettingError
from pumice.local.names import SERVICES

HERE = Path("/data")


def read(*words: str) -> argparse.Namespace:
    """Return the arguments of a line of `pumice up`."""
    parser = argparse.ArgumentParser(prog="pumice up", allow_abbrev=False)
    up.add_arguments(parser)
    args, rest = parser.parse_known_args(words)
    args.rest = rest
    args.own = [s.removeprefix("--") for a in parser._actions for s in a.option_strings]
    return args


def kept(*words: str) -> dict[str, str]:
    """Return what a first start with these words keeps."""
    return saved_flags.merged({}, saved_flags.from_arguments(read(*words)), HERE)


def again(former: dict[str, str], *words: str) -> argparse.Namespace:
    """Return the arguments of a later start with these words."""
    args = read(*words)
    saved_flags.fill(args, saved_flags.merged(former, saved_flags.from_arguments(args), HERE))
    return args


def test_a_second_start_without_flags_is_as_the_first() -> None:
    former = kept("--nodes=5", "--scheduler-conf=/a.conf", "--scheduler.seed=3", "--cluster=mine")
    args = again(former)
    assert (args.nodes, args.cpu, args.scheduler_conf) == (5, "8", Path("/a.conf"))
    assert args.cluster == "mine"
    assert "--scheduler.seed=3" in args.rest
    args.scheduler_conf = None  # it is not there
    assert "--seed=3" in serving.flags_of(args)["scheduler"]


def test_an_add_on_that_is_left_out_has_no_flags_and_stays_out() -> None:
    former = kept("--without=visibility")
    assert list(serving.flags_of(again(former))) == [s for s in SERVICES if s != "visibility"]
    assert "visibility" in serving.flags_of(read())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("--nodes=5", "--nodes=6"),
        ("--nodes=5", "--gpus=2"),
        ("", "--rack=2"),
        ("", "--nodes-file=/n.yaml"),
        ("--nodes-file=/n.yaml", "--nodes=3"),
        ("--scheduler-conf=/a.conf", "--scheduler-conf=/b.conf"),
        ("--scheduler.seed=3", "--scheduler.seed=4"),
        ("--log-level=debug", "--log-level=info"),
        ("--port=7001", "--port=7002"),
        ("--cluster=mine", "--cluster=local"),
    ],
)
def test_a_flag_that_contradicts_the_first_start_is_an_error_that_names_both(
    first: str, second: str
) -> None:
    former = kept(*first.split())
    with pytest.raises(WrongSettingError) as refused:
        again(former, second)
    flag, value = second.removeprefix("--").split("=")
    said = str(refused.value)
    assert f"{flag}={value}: the cluster in /data was started with --" in said
    assert "--forget-flags" in said
    again(former, *first.split())  # the same again is none


def test_a_flag_that_was_not_given_before_is_taken_and_kept() -> None:
    former = kept("--nodes=5")
    args = read("--scheduler-conf=/a.conf", "--binder.kube-api-qps=7")
    held = saved_flags.merged(former, saved_flags.from_arguments(args), HERE)
    assert held["scheduler-conf"] == "/a.conf"
    assert held["binder.kube-api-qps"] == "7"
    assert held["nodes"] == "5"


def test_the_place_of_kubeconfig_and_logs_may_be_another_each_time() -> None:
    former = kept("--kubeconfig-out=/one", "--log-dir=/logs")
    args = again(former, "--kubeconfig-out=/two", "--log-dir=/others")
    assert (args.kubeconfig_out, args.log_dir) == (Path("/two"), Path("/others"))
    assert again(former).kubeconfig_out == Path("/one"), "a copy of the kubeconfig stays valid"


def test_what_holds_is_told_as_one_writes_it() -> None:
    former = kept("--nodes=5", "--log-level=debug", "--scheduler.seed=3")
    said = saved_flags.as_arguments(former)
    assert said == "--nodes=5 --log-level=debug --scheduler.seed=3"
    shown = saved_flags.as_arguments(former, without={"nodes"})
    assert shown == "--log-level=debug --scheduler.seed=3"
    assert saved_flags.as_arguments(kept()) == ""


@draws(
    st.dictionaries(st.sampled_from(["nodes", "gpus", "rack"]), st.integers(0, 9)),
    st.dictionaries(st.sampled_from(SERVICES), st.sampled_from(["debug", "info", "warning"])),
)
def test_what_is_told_starts_the_same_cluster_anew(
    shape: dict[str, int], levels: dict[str, str]
) -> None:
    words = [f"--{name}={value}" for name, value in shape.items()]
    words += [f"--{service}.log-level={level}" for service, level in levels.items()]
    former = kept(*words)
    told = saved_flags.as_arguments(former).split()
    assert kept(*told) == former
