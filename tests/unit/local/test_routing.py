"""`pumice run` gives each flag to the service it is for, and refuses what is not clear."""

from typing import Annotated

import pytest
from msgspec import Meta

from pumice.cli.serving import route
from pumice.local.names import SERVICES
from pumice.local.services import settings_type
from shared.runtime.common import CommonSettings
from shared.runtime.errors import Rejected
from shared.runtime.settings import fields_of


class Cache(CommonSettings, frozen=True, kw_only=True):
    qps: float = 1.0
    page: int = 500


class Scheduler(CommonSettings, frozen=True, kw_only=True):
    qps: float = 1.0
    gates: Annotated[str, Meta(extra={"flag": "feature-gates"})] = ""
    dry: bool = False


FIELDS = {"cache": fields_of(Cache), "scheduler": fields_of(Scheduler)}


@pytest.mark.parametrize(
    ("words", "cache", "scheduler"),
    [
        ([], (), ()),
        (["--page=5"], ("--page=5",), ()),
        (["--page", "5"], ("--page=5",), ()),
        (["--scheduler.qps=7"], (), ("--qps=7",)),
        (["--cache.kubeconfig=of-its-own"], ("--kubeconfig=of-its-own",), ()),
        (["--feature-gates", "A=true,B=false"], (), ("--feature-gates=A=true,B=false",)),
        (["--scheduler.feature-gates=A=true"], (), ("--feature-gates=A=true",)),
        (["--dry", "--page=1"], ("--page=1",), ("--dry=true",)),
        (["--log-level=debug"], ("--log-level=debug",), ("--log-level=debug",)),
        (["--cache.log-level=debug"], ("--log-level=debug",), ()),
        (["--cache.listen-address=:8080"], ("--listen-address=:8080",), ()),
        (["--page=1", "--page=2"], ("--page=1", "--page=2"), ()),
    ],
    ids=lambda value: " ".join(value) or "none",
)
def test_a_flag_goes_to_whom_it_is_for(words, cache, scheduler):
    assert route(words, FIELDS) == {"cache": cache, "scheduler": scheduler}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--qps=1"], "write --cache.qps, --scheduler.qps"),
        (["--listen-address=:1"], "write --cache.listen-address, --scheduler.listen-address"),
        (["--pag=1"], r"there is no flag --pag \(did you mean --page\?\)"),
        (["--scheduler.page=1"], "the scheduler has no flag --page"),
        (["--scheduler.nats=x"], "give --nats once"),
        (["--page"], "--page needs a value"),
        (["page"], "unexpected argument 'page'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_not_clear_is_refused_with_how_to_write_it(words, message):
    with pytest.raises(Rejected, match=message):
        route(words, FIELDS)


def test_every_service_has_settings_where_run_looks_for_them():
    assert all(fields_of(settings_type(service)) for service in SERVICES)


def test_the_flags_of_volcanos_scheduler_reach_the_scheduler():
    fields = {service: fields_of(settings_type(service)) for service in SERVICES}
    routed = route(["--schedule-period=2s"], fields)
    assert routed["scheduler"] == ("--schedule-period=2s",)


@pytest.mark.parametrize(
    "flag", ["--seed=3", "--node-selector=a:b", "--scheduler-sharding-mode=hard"]
)
def test_a_flag_by_which_is_decided_reaches_all_that_decide(flag):
    fields = {service: fields_of(settings_type(service)) for service in SERVICES}
    routed = route([flag], fields)
    assert {service for service, flags in routed.items() if flags} == {"scheduler", "visibility"}
    assert routed["visibility"] == routed["scheduler"] == (flag,)
