"""docs/configuration.md shows the flags and plugins that there are."""

import re

import yaml

from services.scheduler.config import DEFAULT_TEXT
from tools.write_flags import PAGE, render


def test_the_tables_are_those_of_the_settings_and_the_catalogue():
    page = PAGE.read_text()
    assert page == render(page), "run `make crds`"


def test_the_default_on_the_page_is_the_compiled_in_one():
    shown = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown is not None
    assert yaml.safe_load(shown[1]) == yaml.safe_load(DEFAULT_TEXT)
