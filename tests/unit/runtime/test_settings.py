"""Settings from flags, environment and file, and what is refused."""

from typing import Annotated

import pytest
from msgspec import Meta

from shared.runtime.errors import Rejected
from shared.runtime.settings import (
    CommonSettings,
    HelpRequested,
    Seconds,
    Secret,
    fields_of,
    load,
)


class Example(CommonSettings, frozen=True, kw_only=True):
    """Settings of an imagined service."""

    kube_api_qps: Annotated[float, Meta(description="writes per second", gt=0)] = 50
    kube_api_burst: Annotated[int, Meta(description="burst", ge=1)] = 100
    period: Annotated[
        Seconds, Meta(description="time between cycles", extra={"flag": "schedule-period"})
    ] = Seconds(1.0)
    scheduler_name: Annotated[tuple[str, ...], Meta(description="names")] = ("volcano",)


def read(*argv: str, **environ: str) -> Example:
    return load(Example, service="scheduler", argv=argv, environ=environ)


def refusal(*argv: str, **environ: str) -> str:
    with pytest.raises(Rejected) as caught:
        read(*argv, **environ)
    return str(caught.value)


def test_defaults_need_nothing() -> None:
    settings = read()
    assert (settings.kube_api_qps, settings.period, settings.scheduler_name) == (
        50,
        1.0,
        ("volcano",),
    )


def test_flags_take_both_forms_and_lists_repeat() -> None:
    settings = read(
        "--kube-api-qps=7.5",
        "--kube-api-burst",
        "9",
        "--schedule-period",
        "200ms",
        "--scheduler-name=a,b",
        "--scheduler-name",
        "c",
    )
    assert settings.kube_api_qps == 7.5
    assert settings.kube_api_burst == 9
    assert settings.period == pytest.approx(0.2)
    assert settings.scheduler_name == ("a", "b", "c")


@pytest.mark.parametrize(
    ("word", "value"), [("--enable-metrics", True), ("--enable-metrics=false", False)]
)
def test_a_bare_boolean_flag_is_true_and_a_value_needs_an_equals_sign(word, value) -> None:
    assert read(word).enable_metrics is value


def test_a_flag_beats_the_service_variable_which_beats_the_common_one_which_beats_the_file(
    tmp_path,
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("cluster: file\nlog_level: debug\nnats: nats://file:1\nnats-user: filed\n")
    settings = read(
        "--cluster=flag",
        "--settings-file",
        str(file),
        PUMICE_CLUSTER="common",
        PUMICE_SCHEDULER_CLUSTER="own",
        PUMICE_SCHEDULER_NATS="nats://own:1",
        PUMICE_NATS="nats://common:1",
        PUMICE_LOG_LEVEL="error",
    )
    assert settings.cluster == "flag"
    assert settings.nats == "nats://own:1"
    assert settings.log_level == "error"
    assert settings.nats_user == "filed"


def test_a_file_may_hold_native_yaml_values(tmp_path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("enable_metrics: false\nkube_api_burst: 3\nscheduler_name: [a, b]\n")
    settings = read(f"--settings-file={file}")
    assert settings.enable_metrics is False
    assert settings.kube_api_burst == 3
    assert settings.scheduler_name == ("a", "b")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--kube-api-qp=5"], "unknown flag --kube-api-qp (did you mean --kube-api-qps?)"),
        (["--zzz"], "unknown flag --zzz"),
        (["word"], "unexpected argument 'word': settings are given as --name=value"),
        (["--kube-api-burst=many"], "--kube-api-burst: 'many' is not a whole number"),
        (["--kube-api-qps=nan"], "--kube-api-qps: 'nan' is not a number"),
        (["--kube-api-qps=-1"], "--kube-api-qps: Expected `float` > 0.0"),
        (["--schedule-period=soon"], "--schedule-period: 'soon' is not a duration"),
        (["--schedule-period=-1s"], "--schedule-period: '-1s' is not a duration"),
        (["--enable-metrics=maybe"], "--enable-metrics: 'maybe' is neither true nor false"),
        (["--log-level=loud"], "--log-level: 'loud' is not one of debug, info"),
        (["--cluster"], "--cluster needs a value"),
        (["--nats-password=x"], "--nats-password is not taken from the command line"),
        (["--nats=nats://u:p@h"], "--nats: no credentials in a URL on the command line"),
        (["--settings-file=/nonexistent"], "settings file /nonexistent: No such file"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_wrong_flag_is_refused_in_one_line_that_names_it(argv, said) -> None:
    assert refusal(*argv).startswith(said)


def test_an_unknown_variable_of_the_service_is_refused() -> None:
    assert refusal(PUMICE_SCHEDULER_PERIODE="1s") == (
        "unknown environment variable PUMICE_SCHEDULER_PERIODE "
        "(did you mean PUMICE_SCHEDULER_PERIOD?)"
    )


def test_an_unknown_key_of_the_file_is_refused(tmp_path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("clusters: x\n")
    assert refusal("--settings-file", str(file)).endswith(
        "unknown key clusters (did you mean cluster?)"
    )


@pytest.mark.parametrize("text", ["a: [", "- just\n- a list\n", "\x00"])
def test_a_broken_file_is_refused_in_one_line(tmp_path, text) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    assert "\n" not in refusal("--settings-file", str(file))


def test_a_secret_comes_from_a_file_or_the_environment_and_never_shows(tmp_path) -> None:
    file = tmp_path / "password"
    file.write_text("hush\n")
    for settings in (
        read("--nats-password-file", str(file)),
        read(PUMICE_NATS_PASSWORD="hush"),
        read(PUMICE_NATS_PASSWORD_FILE=str(file)),
        read(PUMICE_SCHEDULER_NATS_PASSWORD="hush", PUMICE_NATS_PASSWORD="other"),
    ):
        assert settings.nats_password == Secret("hush")
        assert "hush" not in repr(settings)


def test_help_lists_every_setting_with_its_default() -> None:
    with pytest.raises(HelpRequested) as caught:
        read("--help")
    page = str(caught.value)
    for field in fields_of(Example):
        assert f"--{field.flag}" in page
    assert "time between cycles (default 1s)" in page


def test_version_is_told_m04() -> None:
    with pytest.raises(HelpRequested, match=r"^pumice \d+\.\d+"):
        read("--period", "2s", "--version")
