"""Compares vcctl and Slurm's names with Volcano's own programs (`make vcctl-check VOLCANO=folder`).

The folder holds `vcctl`, `vsub` and the others as Volcano builds or releases them. Each line of
`tests/unit/vcctl/lines.py` is given to both: on a server that always answers the same, and on a
local API server (embedded or real) whose objects are compared as well. With `--record` the outputs
become the golden files of `tests/unit/vcctl`, if all were equal.
"""

import argparse
import asyncio
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pumice.local import embedded
from pumice.local.control_plane import Api, ControlPlaneOptions
from shared.api import kinds
from shared.kube.client import Kube
from shared.kube.sources import KubeconfigSource
from shared.kube.transport import HttpTransport, open_transport
from shared.runtime.clock import SystemClock
from shared.runtime.errors import Gone
from tests.unit.vcctl import lines, ours, world

KINDS: Final = (kinds.JOB, kinds.QUEUE, kinds.COMMAND, kinds.JOBFLOW, kinds.JOBTEMPLATE)
TRIES: Final = 3
"""Times that two outputs may differ: an age changes while one of them is asked."""
CHANGING: Final = {"uid", "resourceVersion", "creationTimestamp"}


class Check:
    """The comparisons, and the lines whose outputs differed."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self.count = 0
        self.wrong: list[str] = []

    def theirs(self, line: Sequence[str], folder: Path, **environ: str) -> ours.Ended:
        """Run one of Volcano's programs."""
        own = {k: v for k, v in os.environ.items() if not k.startswith("VOLCANO_")}
        done = subprocess.run(
            [self._programs / line[0], *line[1:]],
            cwd=folder,
            env={**own, "HOME": str(folder), "TZ": "UTC", "KUBECONFIG": "none-such", **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return ours.Ended(done.stdout, done.stderr, done.returncode)

    def compare(self, line: Sequence[str], wanted: ours.Ended, found: ours.Ended) -> bool:
        """Note whether the outputs of a line are equal."""
        self.count += 1
        if _comparable(wanted) == _comparable(found):
            return True
        self.wrong.append("\n".join([f"$ {line}", *_difference(_shown(wanted), _shown(found))]))
        return False

    def words(self, folder: Path) -> list[dict[str, Any]]:
        """Compare the lines that need no cluster."""
        kept = []
        for line in lines.WORDS:
            found = ours.run(line)
            if self.compare(line, self.theirs(line, folder), found):
                kept.append({"line": line, **found._asdict()})
        return kept

    def reads(self, folder: Path) -> dict[str, Any]:
        """Compare what is shown of the world that stays as it is."""
        for _ in range(TRIES):
            now_s = time.time()
            before = len(self.wrong)
            kept = []
            with world.served(now_s) as address:
                for line in lines.READS:
                    wanted = self.theirs(_to(address, line), folder)
                    at = time.time()
                    found = ours.run(line, world.WorldTransport(now_s), now_s=at)
                    if self.compare(line, wanted, found):
                        kept.append({"line": line, "at": at, **found._asdict()})
            if len(self.wrong) == before:
                break
            again, self.wrong = self.wrong, self.wrong[:before]
        else:
            self.wrong = again
        return {"now": now_s, "lines": kept}

    async def story(self, name: str, plane: "Plane", folder: Path) -> list[dict[str, Any]]:
        """Compare a story: each line, and the objects that it leaves."""
        await plane.clear()
        wanted = [
            self.theirs(line, folder, **{"KUBECONFIG": str(plane.kubeconfig), **environ})
            for environ, line in map(ours.words, lines.STORIES[name])
        ]
        theirs_left = await plane.objects()
        await plane.clear()
        kept = []
        for text, expected in zip(lines.STORIES[name], wanted, strict=True):
            environ, line = ours.words(text)
            recording = ours.Recording(await plane.transport())
            named = "KUBECONFIG" in environ or {"-k", "-s"} & set(line)
            at = time.time()
            found = await asyncio.to_thread(
                ours.run,
                line,
                None if named else recording,
                now_s=at,
                environ={"KUBECONFIG": str(plane.kubeconfig), "HOME": str(folder), **environ},
                folder=folder,
            )
            if self.compare([name, *line], expected, found) and not named:
                kept.append({"line": text, "at": at, "asked": recording.asked, **found._asdict()})
        left = await plane.objects()
        self.count += 1
        if left != theirs_left:
            texts = [json.dumps(each, indent=1, sort_keys=True) for each in (theirs_left, left)]
            self.wrong.append("\n".join([f"objects after {name!r}:", *_difference(*texts)]))
        return kept


def _to(address: str, line: Sequence[str]) -> list[str]:
    """Return a line that asks the server at an address; a flag cannot stand behind `--`."""
    end = line.index("--") if "--" in line else len(line)
    return [*line[:end], "--master", address, *line[end:]]


def _comparable(ended: ours.Ended) -> ours.Ended:
    """Return an output without the words of a parser of YAML: each language has another."""
    return ended._replace(out=re.sub(r"(: yaml: ).*", r"\1…", ended.out))


def _shown(ended: ours.Ended) -> str:
    return f"{ended.out}[stderr]\n{ended.err}[exit code {ended.code}]"


def _difference(wanted: str, found: str) -> list[str]:
    """Return what differs; the ends of lines are shown."""
    one, other = (text.splitlines(keepends=True) for text in (wanted, found))
    shown = difflib.unified_diff(one, other, "Volcano's", "ours", n=2, lineterm="")
    return [line[:1] + repr(line[1:])[1:-1] for line in shown]


class Plane:
    """A local API server for the stories."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    async def transport(self) -> HttpTransport:
        """Return a new way to it."""
        clock = SystemClock()
        source = KubeconfigSource(str(self.kubeconfig), context=None, clock=clock)
        return await open_transport(source, user_agent="vcctl-check", clock=clock)

    async def clear(self) -> None:
        """Delete all jobs, queues and flows; make the namespace `team`."""
        async with Kube(transport=await self.transport()) as kube:
            for kind in KINDS:
                for item in await _items(kube, kind):
                    at = item["metadata"]
                    await _delete(kube, kind, at.get("namespace", ""), at["name"])
            names = [item["metadata"]["name"] for item in await _items(kube, kinds.NAMESPACE)]
            if "team" not in names:
                await kube.create(kinds.NAMESPACE, "", {"metadata": {"name": "team"}})

    async def objects(self) -> list[Any]:
        """Return what is there, without what each run has of its own."""
        async with Kube(transport=await self.transport()) as kube:
            return [_bare(item) for kind in KINDS for item in await _items(kube, kind)]


async def _items(kube: Kube, kind: kinds.Kind) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(await kube.request("GET", kind.path()))["items"]
    return found


async def _delete(kube: Kube, kind: kinds.Kind, namespace: str, name: str) -> None:
    try:
        await kube.request("DELETE", kind.path(namespace, name))
    except Gone:
        return


def _bare(value: Any) -> Any:  # noqa: ANN401 - any value of JSON
    if isinstance(value, list):
        return [_bare(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    made = "generateName" in value
    hidden = CHANGING | {"managedFields"} | ({"name"} if made else set())
    return {name: _bare(inner) for name, inner in value.items() if name not in hidden}


async def _stories(check: Check, folder: Path, api: Api) -> dict[str, list[dict[str, Any]]]:
    options = ControlPlaneOptions(directory=folder / "plane", api=api)
    async with embedded.plane_of(options, await embedded.ensure(api, print)) as plane:
        await plane.apply_crds()
        at = Plane(plane.kubeconfig)
        return {name: await check.story(name, at, folder) for name in lines.STORIES}


def _check(programs: Path, api: Api, *, record: bool) -> int:
    check = Check(programs)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(lines.FILES, folder, dirs_exist_ok=True)
        golden: dict[str, Any] = {"words": check.words(folder), "reads": check.reads(folder)}
        golden["stories"] = asyncio.run(_stories(check, folder, api))
    for text in check.wrong:
        print(text)
    print(f"{check.count - len(check.wrong)} passed, {len(check.wrong)} failed")
    if record and not check.wrong:
        _write(golden)
    return 1 if check.wrong else 0


def _write(golden: dict[str, Any]) -> None:
    for name, content in golden.items():
        text = json.dumps(content, indent=1, ensure_ascii=False)
        (lines.GOLDEN / f"{name}.json").write_text(f"{text}\n", "utf-8")


def main() -> int:
    """Compare; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", type=Path, help="folder with Volcano's programs")
    parser.add_argument("--api", choices=("embedded", "real"), default="embedded")
    parser.add_argument("--record", action="store_true", help="write the golden files")
    args = parser.parse_args()
    missing = [name for name in lines.PROGRAMS if not (args.programs / name).exists()]
    if missing:
        print(f"error: no {', '.join(missing)} in {args.programs}", file=sys.stderr)
        return 2
    os.environ["TZ"] = "UTC"
    time.tzset()
    return _check(args.programs.absolute(), args.api, record=args.record)


if __name__ == "__main__":
    raise SystemExit(main())
