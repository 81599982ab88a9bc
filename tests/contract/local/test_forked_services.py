"""A service that tests fork behaves to its launcher as one that is started."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pumice.local.process import Process, ProcessSpec, popen
from tests.support import forked
from tests.support.wait import until

ROOT = Path(__file__).parents[3]
LAUNCHER = """
import signal, sys
from pathlib import Path
from pumice.local.process import Process, ProcessSpec
from tests.support import forked

argv = (sys.executable, "-P", "-m", "services.scheduler", "--nats=nats://127.0.0.1:1")
process = Process(ProcessSpec(name="s", argv=argv, log=Path(sys.argv[1])), start=forked.start)
process.start()
print(process.pid, flush=True)
signal.pause()
"""


@pytest.fixture(params=[forked.start, popen], ids=["forked", "started"])
def service(request, tmp_path):
    """Make a service of these flags; it is killed at the end."""
    made = []

    def make(name, *flags):
        argv = (sys.executable, "-P", "-m", f"services.{name}", *flags)
        spec = ProcessSpec(name=name, argv=argv, log=tmp_path / "log")
        made.append(Process(spec, start=request.param))
        made[-1].start()
        return made[-1]

    yield make
    for process in made:
        process.kill()


async def test_it_ends_with_its_own_code_and_words(service, tmp_path):
    process = service("cache", "--nope")
    assert await process.exited() == 2
    assert process.last_line() == "error: unknown flag --nope"


async def test_it_says_by_which_signal_it_ended(service, tmp_path):
    process = service("scheduler", "--nats=nats://127.0.0.1:1")
    await until(lambda: "service_started" in (tmp_path / "log").read_text())
    process.kill()
    assert process.describe_end().startswith("scheduler was killed by SIGKILL")


async def test_it_does_not_outlive_its_launcher(tmp_path):
    command = [sys.executable, "-c", LAUNCHER, str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as launcher:
        pid = int(launcher.stdout.readline())
        os.kill(pid, 0)
        launcher.send_signal(signal.SIGKILL)

    def is_gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    await until(is_gone, describe=f"process {pid} is gone")
