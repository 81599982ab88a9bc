"""What `make docs` adds to the pages under docs: those at the top of the checkout, and the API.

Pages of the checkout link to each other by their places in it; in the site the pages at the top
stand beside those of docs. A link to a file that is no page becomes its name.
"""

import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
AT_THE_TOP: Final = {
    "README.md": "index.md",
    "SECURITY.md": "SECURITY.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
}
"""File at the top of the checkout → its page in the site."""
MODULES: Final = ("plugins", "events", "testing")
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the decisions at the end of the navigation, in their order."""
    decisions = sorted(path.name for path in (ROOT / "docs/adr").glob("*.md"))
    assert config.nav is not None, "mkdocs.yml has a navigation"
    config.nav[-1]["Explanation"].append({"Decisions": [f"adr/{name}" for name in decisions]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the top, and one for each module of the public API."""
    for name, page in AT_THE_TOP.items():
        text = (ROOT / name).read_text("utf-8")
        files.append(File.generated(config, page, content=text))
    for module in MODULES:
        text = f"# pumice.{module}\n\n::: pumice.{module}\n"
        files.append(File.generated(config, f"api/{module}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Have links lead to where the pages are in the site."""
    del config
    source = _place_of(page.file.src_uri)
    known = {_place_of(each.src_uri): each.src_uri for each in files}
    return _LINK.sub(lambda link: _moved(link, source, page.file.src_uri, known), markdown)


def _place_of(page: str) -> str:
    """Return where the source of a page is in the checkout."""
    at_the_top = {page: name for name, page in AT_THE_TOP.items()}
    return at_the_top.get(page, f"docs/{page}")


def _moved(link: re.Match[str], source: str, page: str, known: dict[str, str]) -> str:
    image, words, target, anchor = link.groups()
    if "://" in target or target.startswith("mailto:"):
        return link[0]
    place = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if place in known:
        return f"{image}[{words}]({'../' * page.count('/')}{known[place]}{anchor or ''})"
    if not (ROOT / place).exists():
        return link[0]  # a dead link, which the build reports
    return words
