"""What an expression may use, and what becomes of one that uses more."""

import os
import resource
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.scheduler.adapters.expression_process import (
    EvaluatorUnavailable,
    Exceeded,
    ExpressionProcess,
)
from services.scheduler.adapters.expressions import ExpressionEvaluator
from services.scheduler.cel.limits import ExpressionLimits
from services.scheduler.policy.devices.pools import DeviceId, Offered
from services.scheduler.policy.devices.requests import Alternative, DeviceMatcher, SearchBudget
from services.scheduler.policy.devices.selectors import (
    DeviceContent,
    Evaluator,
    SelectorFault,
    Verdict,
    content_of,
)
from shared.api.meta import ObjectMeta
from shared.api.resource import Device, DeviceAttribute, DeviceClass, ExactDeviceRequest
from tests.unit.scheduler.hostile_expressions import HOSTILE, NESTED, replaced

LIMITS = ExpressionLimits()
PATIENT = ExpressionLimits(cpu_s=20.0, wall_s=40.0)
"""For what ends by another limit, on however slow a machine."""
DEVICE = content_of("gpu.com", Device(name="d", attributes={"n": DeviceAttribute(int_value=1)}))
BENIGN = 'device.driver == "gpu.com"'


def device(number: int):
    return content_of(
        "gpu.com", Device(name="d", attributes={"n": DeviceAttribute(int_value=number)})
    )


@contextmanager
def process(limits: ExpressionLimits = LIMITS) -> Iterator[ExpressionProcess]:
    found = ExpressionProcess(limits)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def evaluator(**arguments) -> Iterator[ExpressionEvaluator]:
    found = ExpressionEvaluator(**{"wait_s": 50.0, **arguments})
    try:
        yield found
    finally:
        found.close()


def answer(of: ExpressionProcess, expression: str) -> object:
    try:
        return next(of.answers(expression, [DEVICE.encoded]))
    except Exceeded as error:
        return error


@pytest.fixture(scope="module")
def shared_process() -> Iterator[ExpressionProcess]:
    with process() as found:
        yield found


@pytest.mark.parametrize("name", HOSTILE)
def test_a_costly_expression_exceeds_a_limit_and_harms_no_other(name, shared_process):
    assert len(HOSTILE[name]) <= 10 * 1024
    found = answer(shared_process, HOSTILE[name])
    # a fast processor may reach the bound of iterations before that of time
    assert isinstance(found, Exceeded) or "teration budget" in str(found)
    assert answer(shared_process, BENIGN) is True


@pytest.mark.parametrize("name", NESTED)
def test_an_expression_of_any_form_is_answered_within_the_limits(name, shared_process):
    found = answer(shared_process, NESTED[name])
    assert found in {True, False} or isinstance(found, str | Exceeded)
    assert answer(shared_process, BENIGN) is True


def test_time_is_limited_per_expression_and_device():
    with process() as limited, pytest.raises(Exceeded, match="100 ms of processor time"):
        list(limited.answers(HOSTILE["sets"], [DEVICE.encoded]))


def test_a_loop_has_a_bounded_number_of_iterations(shared_process):
    found = answer(shared_process, NESTED["nested ranges"])
    assert "teration" in str(found)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS does not limit the address space")
def test_memory_is_limited():
    with process(PATIENT) as limited, pytest.raises(Exceeded, match="256 MiB of memory"):
        list(limited.answers(replaced(1000, 1000, 5000), [DEVICE.encoded]))


def test_a_process_that_does_not_answer_is_ended_and_the_question_put_to_another():
    with process(ExpressionLimits(wall_s=1.0)) as limited:
        assert answer(limited, BENIGN) is True
        first = limited.pid
        os.kill(first, signal.SIGSTOP)
        assert answer(limited, BENIGN) is True
        assert limited.pid != first


def test_an_expression_is_not_blamed_for_a_process_that_gets_no_processor(monkeypatch):
    """As on a machine that is suspended, or where a process is killed for the memory of others."""
    send, signals = ExpressionProcess._send, [signal.SIGSTOP, signal.SIGKILL]

    def interrupted(self, started, data):
        if signals:
            os.kill(started.pid, signals.pop())
        send(self, started, data)

    monkeypatch.setattr(ExpressionProcess, "_send", interrupted)
    with process(ExpressionLimits(wall_s=1.0)) as limited:
        assert answer(limited, BENIGN) is True
    assert not signals


def test_an_expression_that_gets_every_process_killed_is_blamed_in_the_end(monkeypatch):
    send = ExpressionProcess._send

    def killing(self, started, data):
        os.kill(started.pid, signal.SIGKILL)
        send(self, started, data)

    monkeypatch.setattr(ExpressionProcess, "_send", killing)
    with process() as limited:
        assert isinstance(answer(limited, BENIGN), Exceeded)


def test_a_service_with_many_open_files_has_expressions_evaluated():
    """A descriptor beyond 1023 is more than `select` takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, hard), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    try:
        with process() as limited:
            assert answer(limited, BENIGN) is True
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_that_dies_is_replaced_and_no_expression_is_blamed():
    with process() as limited:
        for _ in range(2):
            assert answer(limited, BENIGN) is True
            os.kill(limited.pid, signal.SIGKILL)
        assert answer(limited, BENIGN) is True


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_the_process_has_neither_the_secrets_nor_the_files_of_the_service(monkeypatch, tmp_path):
    monkeypatch.setenv("NATS_PASSWORD", "not for tenants")
    with (tmp_path / "key").open("w") as file, process() as limited:
        os.set_inheritable(file.fileno(), True)
        assert answer(limited, BENIGN) is True
        of = Path(f"/proc/{limited.pid}")
        assert b"NATS_PASSWORD" not in (of / "environ").read_bytes()
        assert str(tmp_path / "key") not in {str(each.readlink()) for each in (of / "fd").iterdir()}


def test_without_a_process_nothing_becomes_known_and_the_log_says_why(monkeypatch):
    lines: list[str] = []

    class Log:
        def error(self, event: str, **more: object) -> None:
            lines.append(f"{event} {more['reason']}")
            said.set()

    said = threading.Event()
    monkeypatch.setattr(sys, "executable", "/none/python")
    with (
        process() as limited,
        pytest.raises(EvaluatorUnavailable, match="no process can be started"),
    ):
        list(limited.answers(BENIGN, [DEVICE.encoded]))
    with evaluator(wait_s=0.0, log=Log()) as waiting:
        assert waiting.verdict("ns", BENIGN, DEVICE) is None
        assert said.wait(30)
        assert waiting.verdict("ns", BENIGN, DEVICE) is None
    assert lines[0].startswith("expressions_not_evaluated no process can be started")


def test_no_session_waits_for_a_process_that_cannot_be_started(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/none/python")
    found: list[object] = []
    with evaluator(wait_s=3600.0) as waiting:

        def ask() -> None:
            for _ in range(2):
                waiting.begin()
                found.append(waiting.verdict("ns", BENIGN, DEVICE))

        session = threading.Thread(target=ask, daemon=True)
        session.start()
        session.join(60)
        assert found == [None, None]
        assert waiting.failure.startswith("no process can be started")


def test_evaluation_goes_on_after_an_error_of_ours(monkeypatch):
    answers, fails = ExpressionProcess.answers, [ZeroDivisionError("ours")]

    def failing(self, expression, devices):
        if fails:
            raise fails.pop()
        return answers(self, expression, devices)

    monkeypatch.setattr(ExpressionProcess, "answers", failing)
    monkeypatch.setattr("services.scheduler.adapters.expressions._RETRY_S", 0.01)
    with evaluator() as found:
        assert found.verdict("ns", BENIGN, DEVICE) is None
        assert found.failure == "ZeroDivisionError: ours"
        until_known(found)
        assert found.failure == ""


def until_known(found: ExpressionEvaluator) -> None:
    deadline = time.monotonic() + 50.0
    while found.verdict("ns", BENIGN, DEVICE) is None:
        assert time.monotonic() < deadline


# --- the evaluator -------------------------------------------------------------------------------


def test_a_session_waits_no_longer_than_it_may_in_all():
    with evaluator(wait_s=0.0) as impatient:
        impatient.begin()
        known = [impatient.verdict("ns", BENIGN, device(number)) for number in range(100)]
        assert known == [None] * 100


def test_no_process_runs_before_the_first_expression():
    with evaluator() as found:
        assert found.pid is None
        assert found.verdict("ns", BENIGN, DEVICE) is True
        assert found.pid is not None


def test_an_expression_beyond_its_limit_runs_once(monkeypatch):
    runs: list[str] = []
    answers = ExpressionProcess.answers

    def counted(self, expression, devices):
        runs.append(expression)
        return answers(self, expression, devices)

    monkeypatch.setattr(ExpressionProcess, "answers", counted)
    costly = HOSTILE["sets"]
    with evaluator() as found:
        for number in range(20):
            verdict = found.verdict("ns", costly, device(number))
            assert isinstance(verdict, SelectorFault)
            assert "more than 100 ms of processor time" in str(verdict)
        assert found.verdict("ns", BENIGN, DEVICE) is True
        assert isinstance(found.verdict("other", costly, DEVICE), SelectorFault)
    assert runs.count(costly) == 1


def test_namespaces_take_turns_so_that_one_with_many_costly_expressions_delays_itself(monkeypatch):
    runs: list[str] = []
    answers = ExpressionProcess.answers

    def counted(self, expression, devices):
        runs.append(expression)
        return answers(self, expression, devices)

    monkeypatch.setattr(ExpressionProcess, "answers", counted)
    with evaluator(limits=ExpressionLimits(cpu_s=0.02)) as found:
        found._left_s = 0.0
        for number in range(500):
            found.verdict("hostile", f"{number} < 0 || {HOSTILE['sets']}", DEVICE)
        found.begin()
        before = len(runs)
        assert found.verdict("healthy", BENIGN, DEVICE) is True
        assert len(runs) - before <= 3
        assert len(runs) < 100


def test_many_devices_of_one_namespace_leave_turns_to_others(monkeypatch):
    turns: list[tuple[str, int]] = []
    answers = ExpressionProcess.answers

    def counted(self, expression, devices):
        turns.append((expression, len(devices)))
        return answers(self, expression, devices)

    monkeypatch.setattr(ExpressionProcess, "answers", counted)
    with evaluator() as found:
        found._left_s = 0.0
        for number in range(5_000):
            found.verdict("large", BENIGN, device(number))
        found.begin()
        assert found.verdict("small", "true", DEVICE) is True
        assert found.verdict("large", BENIGN, device(4_999)) is True
    sizes = [size for expression, size in turns if expression == BENIGN]
    assert sizes[0] == 1
    assert max(sizes) <= 64


def test_the_queue_of_a_namespace_is_bounded(monkeypatch):
    monkeypatch.setattr("services.scheduler.adapters.expressions.QUEUED_MAX", 10)
    with evaluator(wait_s=0.0) as found:
        for number in range(1_000):
            found.verdict("ns", BENIGN, device(number))
            assert found._queued.get("ns", 0) <= 10
        found._left_s = 50.0
        assert found.verdict("other", BENIGN, DEVICE) is True


def test_news_are_told_once_verdicts_are_known():
    told = threading.Event()
    with evaluator(wait_s=0.0, news=told.set) as found:
        assert found.verdict("ns", BENIGN, DEVICE) is None
        assert told.wait(50)
        assert found.verdict("ns", BENIGN, DEVICE) is True


def test_a_fork_knows_what_is_known_and_asks_nothing():
    with evaluator() as found:
        assert found.verdict("ns", BENIGN, DEVICE) is True
        found._left_s = 0.0
        for number in range(2_000):
            found.verdict("ns", BENIGN, device(number))
        for _ in range(20):
            child = _fork()
            if child == 0:
                is_right = found.verdict("ns", BENIGN, DEVICE) is True
                found.begin()
                os._exit(0 if is_right and found.verdict("ns", "1 == 1", DEVICE) is None else 1)
            assert os.waitpid(child, 0)[1] == 0
        found.begin()
        assert found.verdict("ns", "1 == 1", DEVICE) is True


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class Yes(Evaluator):
    """Every device meets every expression."""

    def begin(self) -> None:
        return

    def verdict(self, owner: str, expression: str, device: DeviceContent) -> Verdict:
        return True


def test_the_conditions_that_a_scheduler_remembers_take_bounded_memory(monkeypatch):
    monkeypatch.setattr("services.scheduler.policy.devices.requests._JUDGED_MAX", 100)
    judge = DeviceMatcher(Yes())
    offered = Offered(DeviceId("gpu.com", "p", "d"), Device(name="d"), 1, 0, {}, "n1", None)
    asks, of_class = ExactDeviceRequest(device_class_name="gpu"), DeviceClass(metadata=ObjectMeta())
    for number in range(50):
        conditions = (f"{'true && ' * 200}{number} >= 0",)
        alternative = Alternative("r", "r", asks, of_class, conditions, "ns")
        assert judge.answer(alternative, offered, SearchBudget(10)) is True
        kept = sum(len(text) for each in judge._judged for text in each)
        assert kept <= 100 * 100 + len(conditions[0])
