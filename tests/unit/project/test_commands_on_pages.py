"""Every command line of README and docs has something that runs it."""

import re
from itertools import chain

from tests.support import pages
from tests.support.pages import ALONE, NOT_ON_THIS_MACHINE, RUN_BY, runner

LINES = [
    (page.name, block.heading, command)
    for page in pages.pages()
    for block in pages.blocks(page)
    for command in block.commands
]


def test_every_command_line_is_run_by_a_test_or_a_target() -> None:
    unknown = [line for line in LINES if not runner(*line)]
    assert unknown == [], "say in tests/support/pages.py what runs them"


def test_what_runs_them_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (pages.ROOT / "Makefile").read_text(), re.MULTILINE))
    for where in {*RUN_BY.values(), *ALONE.values()} - NOT_ON_THIS_MACHINE:
        if where.startswith("make "):
            assert where.removeprefix("make ") in targets
        else:
            assert (pages.ROOT / where).is_file(), where


def test_a_test_that_runs_the_lines_of_a_page_reads_the_page() -> None:
    for (page, _), where in RUN_BY.items():
        if where.endswith(".py"):
            assert page in (pages.ROOT / where).read_text("utf-8"), (page, where)


def test_no_entry_is_without_a_line() -> None:
    blocks = {(page, heading) for page, heading, _ in LINES}
    assert not [place for place in RUN_BY if place not in blocks]
    commands = {command for _, _, command in LINES}
    assert not [start for start in ALONE if not any(c.startswith(start) for c in commands)]


def test_a_target_on_a_page_is_one_that_there_is() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (pages.ROOT / "Makefile").read_text(), re.MULTILINE))
    named = chain.from_iterable(re.findall(r"make ([a-z-]+)", c) for _, _, c in LINES)
    assert not [target for target in named if target not in targets]
