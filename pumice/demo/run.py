"""Everything around the story: parts, a temporary local stack, the end, and clearing up.

The composition root of `pumice demo`. After any end, no program and no directory is left behind;
only a demo that failed leaves its logs, and says where.
"""

import asyncio
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from textwrap import wrap
from typing import Final, TextIO

from rich.text import Text

from pumice.demo import DemoOptions, summary
from pumice.demo.interrupt import Interrupts
from pumice.demo.output import Output, choose
from pumice.demo.sentences import Sentence
from pumice.demo.story import Demo, DemoError
from pumice.local import parts
from pumice.local.control_plane import ControlPlaneOptions
from pumice.local.embedded import ensure
from pumice.local.errors import LocalError
from pumice.local.fleet import Fleet, NodeShape
from pumice.local.stack import LocalStack, StackOptions
from shared.kube.config import connect
from shared.runtime.clock import Clock
from shared.runtime.errors import PumiceError

FLEET: Final = Fleet(nodes=(NodeShape(count=8, cpu="8", memory="32Gi"),))
_USER_AGENT: Final = "pumice-demo"
EMBEDDED: Final = "embedded API server"
_ON_TOP: Final = (EMBEDDED, "kube-apiserver", "nats-server")
_GROUND: Final = {
    "embedded": "the embedded API server of Pumice and a real nats-server",
    "real": "a real kube-apiserver with etcd and KWOK, and a real nats-server",
}
_OTHER: Final = {
    "embedded": "the same on the real parts: {} demo --api real",
    "real": "the same without them, at once: {} demo",
}
_NEXT: Final = (
    ("{} up", "keeps such a cluster for work (kubectl works on it)"),
    ("{} events --follow", "tells what happens on it"),
    ("examples/", "has the jobs of this demo"),
)


def next_steps(api: str, program: str) -> Sequence[str]:
    """Return what to do after the demo on an API server; `program` is how to call pumice."""
    commands = [(command.format(program), words) for command, words in _NEXT]
    width = max(len(command) for command, _ in commands)
    server, other = _GROUND[api], _OTHER[api].format(program)
    return (
        "",
        "go on:",
        *(f"  {command:<{width}}  {words}" for command, words in commands),
        "",
        f"this ran on {server}; {other}",
    )


def program_name(called: str) -> str:
    """Return how a person calls this program again: `pumice` on PATH, else as it was called."""
    if shutil.which("pumice"):
        return "pumice"
    path = Path(called)
    if path.name == "__main__.py":
        return "python -m pumice"
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else called


class DemoRun:
    """One demo from nothing to nothing."""

    def __init__(
        self, options: DemoOptions, *, interrupts: Interrupts, out: TextIO, clock: Clock
    ) -> None:
        self._options = options
        self._interrupts = interrupts
        self._clock = clock
        self._began_s = clock.monotonic()
        self._output: Output = choose(out, plain=options.plain)
        self._versions: Mapping[str, str] = {}
        self._up_s = 0.0

    async def run(self) -> None:
        """Run the whole demo and print its summary. Raises DemoError, LocalError, PumiceError."""
        api = self._options.api
        self._setup(f"a demo on {_GROUND[api]}")
        binaries = await ensure(api, self._setup)
        found = await asyncio.to_thread(parts.find_all, tuple(binaries))
        self._versions = {name: part.version for name, part in found.items()}
        if api == "embedded":
            self._versions = {EMBEDDED: metadata.version("pumice"), **self._versions}
        self._setup(f"found {self._ran_on(*self._versions)}")
        directory = Path(tempfile.mkdtemp(prefix="pumice-demo-"))
        logs: Path | None = None
        try:
            await self._run_stack(directory, binaries)
        except (DemoError, PumiceError) as exc:
            logs = directory / "logs"
            raise DemoError(f"{exc}\n  logs: {logs}") from exc
        except LocalError:  # names its log itself
            logs = directory / "logs"
            raise
        finally:
            _clear(directory, keep=logs)

    async def _run_stack(self, directory: Path, binaries: Mapping[str, Path]) -> None:
        options = StackOptions(
            plane=ControlPlaneOptions(directory=directory, api=self._options.api), fleet=FLEET
        )
        stack = LocalStack(options, binaries, report=self._setup)
        try:
            await stack.start()
            self._up_s = self._now_s()
            async with await connect(
                str(stack.plane.kubeconfig), user_agent=_USER_AGENT, clock=self._clock
            ) as kube:
                demo = Demo(
                    kube=kube,
                    output=self._output,
                    clock=self._clock,
                    began_s=self._began_s,
                    versions=self._ran_on(*(n for n in _ON_TOP if n in self._versions)),
                    deaths=stack.deaths,
                )
                await self._play(demo)
        finally:
            with self._interrupts.deferred():
                self._output.close()
                await stack.stop()

    async def _play(self, demo: Demo) -> None:
        try:
            await demo.play(deadline_s=self._options.deadline_s)
        except DemoError:
            self._write(*summary.timeline(demo.scene, self._output.width))
            raise
        self._write(
            *summary.timeline(demo.scene, self._output.width),
            "",
            *summary.totals(demo.scene),
            f"the cluster was up after {self._up_s:.1f} s, the jobs after {self._now_s():.1f} s",
            "",
            f"ran on {self._ran_on(*self._versions)}",
            f"with Pumice {metadata.version('pumice')} on Python {platform.python_version()}: "
            "cache, scheduler, binder, controller, admission and visibility, each a process of its "
            "own",
            *next_steps(self._options.api, program_name(sys.argv[0])),
        )

    def _write(self, *lines: Text | str) -> None:
        """Remove the frame and write lines; sentences (str) are wrapped."""
        self._output.close()
        for line in lines:
            if isinstance(line, Text):
                self._output.write([line])
            else:
                wrapped = wrap(line, self._output.width, subsequent_indent="  ") or [""]
                self._output.write([Text(part) for part in wrapped])

    def _setup(self, line: str) -> None:
        self._output.report([Sentence(at_s=self._now_s(), subject="setup", text=line)])

    def _now_s(self) -> float:
        return self._clock.monotonic() - self._began_s

    def _ran_on(self, *names: str) -> str:
        return ", ".join(f"{name} {self._versions.get(name, '')}".rstrip() for name in names)


def _clear(directory: Path, *, keep: Path | None = None) -> None:
    """Remove the demo's directory, all but the logs in `keep` if there are any."""
    if keep is None or not keep.is_dir():
        shutil.rmtree(directory, ignore_errors=True)
        return
    for entry in directory.iterdir():
        if entry == keep:
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
