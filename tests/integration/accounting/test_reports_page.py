"""The lines of docs/usage-reports.md, on a cluster with accounting and a job that has ended."""

import shlex

import pytest

from tests.integration.local.test_command_line import pumice
from tests.integration.local.test_in_process import plane
from tests.integration.local.test_one_in_charge import completes
from tests.support import pages
from tests.support.api import connect
from tests.support.pumice_run import pumice_run
from tests.support.wait import until
from tests.support.world import job, task

PAGE = pages.ROOT / "docs" / "usage-reports.md"
LINES = [
    line
    for block in pages.blocks(PAGE)
    if block.heading == "From the command line"
    for line in block.commands
]
SAYS = {
    "report usage --by queue": "AMOUNT-HOURS",
    "report usage --by day": "default,cpu,",
    "report jobs": "Completed",
    "report waits": "MAX-SECONDS",
    "report efficiency": "cpu",
    "history": "default",
    "history train": "Completed",
    "sacct -a": "default|COMPLETED|",
    "sacct -j": "default/train",
    "sreport cluster": "default",
    "sreport user": "Used",
    "sshare": "FairShare",
}
"""Beginnings of lines, of which the longest counts, and what their output has."""


async def reports(line: str, *target: str) -> None:
    """Wait until a line of the page reports the job's end, which is recorded a moment later."""
    words = shlex.split(line, comments=True)[1:]
    start = max((s for s in SAYS if " ".join(words).startswith(s)), key=len)
    out = ""

    async def says() -> bool:
        nonlocal out
        code, out, err = await pumice(*words, *target)
        assert (code, err) == (0, ""), line
        return SAYS[start] in out

    await until(says, deadline_s=60, describe=lambda: f"{line}, it says {out}")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("api", ["embedded", "real"])
async def test_each_line_of_the_page_reports_what_was_recorded(api, tmp_path):
    assert len(LINES) >= len(SAYS)
    async with plane(api, tmp_path / "plane") as below:
        target = ("--kubeconfig", str(below.kubeconfig))
        data = ("--data-dir", str(tmp_path / "run"))
        async with pumice_run("--in-process", "--with", "accounting", *target, *data) as run:
            await run.ready()
            async with connect(below.kubeconfig) as client:
                work = task("work", 2, annotations={"pumice.dev/run-seconds": "3"})
                await client.create("jobs", job("train", work), "default")
                await completes(client, "train")

            for line in LINES:
                await reports(line, *target)
            await run.stop()
