"""The command lines of README and docs, and what runs them: a test, or a target of the Makefile.

The lines are in the blocks between fences that are no other language. A test that is named here
takes them from the page itself, so that what it runs is what stands there. `make` targets that need
docker, hours, or a data set are their own check.
"""

import re
import textwrap
from pathlib import Path
from typing import Final, NamedTuple

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_PROGRAMS = (
    "make",
    "pumice",
    "kubectl",
    "helm",
    "docker",
    "python",
    ".venv/bin/python",
    "comm",
    "nats",
    "source",
    "vcctl",
    "vsub",
    "vjobs",
    "vqueues",
    "vcancel",
)
"""Beginnings of commands among the lines of a block without a language."""


class Block(NamedTuple):
    """One block of commands on a page."""

    heading: str
    """The heading above it."""
    text: str

    @property
    def commands(self) -> list[str]:
        """Return its lines without what is said of them, `$` and output."""
        found = []
        for line in self.text.splitlines():
            bare = line.removeprefix("$ ")
            if bare.startswith(tuple(f"{program} " for program in _PROGRAMS)):
                found.append(re.sub(r"\s{2,}#.*$|\s+# .*$", "", bare).rstrip())
        return found


def pages() -> list[Path]:
    """Return README and all pages of docs that are for people who use Pumice."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page that hold commands."""
    text = page.read_text("utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        heading = [h[1] for h in _HEADING.finditer(text, 0, match.start())][-1]
        block = Block(heading, textwrap.dedent(match[3]))
        if match[2] in {"", "sh", "bash", "console"} and block.commands:
            found.append(block)
    return found


FIRST_STEPS: Final = "tests/contract/local/test_first_steps.py"
LOCAL: Final = "tests/contract/docs/test_pages_on_a_local_cluster.py"
ON_KUBERNETES: Final = "tests/integration/docs/test_deployment_page.py"
UPGRADING: Final = "tests/integration/docs/test_upgrading_page.py"
FROM_VOLCANO: Final = "tests/integration/docs/test_from_volcano.py"
HELM: Final = "tests/integration/deploy/test_chart_with_helm.py"
CLI: Final = "tests/unit/queries/test_cli_page.py"
REPORTS: Final = "tests/integration/accounting/test_reports_page.py"
VCCTL: Final = "tests/contract/local/test_vcctl.py"

RUN_BY: Final[dict[tuple[str, str], str]] = {
    ("README.md", "Use it"): FIRST_STEPS,
    ("cli.md", "Questions"): CLI,
    ("usage-reports.md", "From the command line"): REPORTS,
    ("fair-share.md", "Ask what it would change"): "tests/unit/replays/test_replay_week.py",
    ("defragmentation.md", "Show the moves"): LOCAL,
    ("cli.md", "As a plugin of kubectl"): CLI,
    ("cli.md", "Completion"): CLI,
    ("vcctl.md", "vcctl and Slurm's names"): VCCTL,
    ("from-volcano.md", "From Volcano to Pumice"): FROM_VOLCANO,
    ("from-volcano.md", "What to check"): FROM_VOLCANO,
    ("from-volcano.md", "Back to Volcano"): FROM_VOLCANO,
    ("observing.md", "Why does my job wait?"): LOCAL,
    ("observing.md", "One job's life"): LOCAL,
    ("simulation.md", "Simulation"): "tests/sim/test_seeds.py",
    ("visibility.md", "Questions"): "tests/contract/docs/test_visibility_page.py",
    ("shards.md", "Shards: several schedulers on one cluster"): LOCAL,
    ("deployment.md", "Kubernetes"): ON_KUBERNETES,
    ("deployment.md", "Three NATS servers"): ON_KUBERNETES,
    ("deployment.md", "Uninstall"): ON_KUBERNETES,
    ("upgrading.md", "In which order"): UPGRADING,
    ("deployment.md", "Helm"): HELM,
    ("shards.md", "Two schedulers"): HELM,
    ("deployment.md", "Compose: the development stack"): "make compose-check",
}
"""Page and heading of a block → the test that runs its lines, or the target that does."""

ALONE: Final[dict[str, str]] = {
    "make demo": LOCAL,
    "make sim": "make sim",
    "make setup": FIRST_STEPS,
    "make test-fast": "make test-fast",
    "make test": "make test",
    "make laws": "make laws",
    "make lint": "make lint",
    "make test-web": "make test-web",
    "pumice web": "tests/unit/web/test_web_command.py",
    "pumice run --in-process": "tests/integration/local/test_in_process.py",
    "make docs": "make docs",
    "make attack": "make attack",
    "make upgrade-check": "make upgrade-check",
    "make nightly": "make nightly",
    ".venv/bin/python -m tests.attack": "make attack",
    "make bench": "make bench",
    "docker build": "make compose-check",
    "kubectl -n pumice-system rollout status": "a cluster with kubelets and the image",
    "python -m services.scheduler replay": "tests/unit/scheduler/test_replay.py",
}
"""Beginnings of lines that are run otherwise than their block, and by what; the longest counts."""

NOT_ON_THIS_MACHINE: Final = frozenset({"a cluster with kubelets and the image"})


def runner(page: str, heading: str, command: str) -> str:
    """Return what runs a line, "" when nothing is known to."""
    alone = [start for start in ALONE if command.startswith(start)]
    if alone:
        return ALONE[max(alone, key=len)]
    return RUN_BY.get((page, heading), "")
