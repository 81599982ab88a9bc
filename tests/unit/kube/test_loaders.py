"""kubernetes-asyncio's loaders are imported without its client, and without a trace."""

import subprocess
import sys

import pytest

BEFORE = """
import sys, types
theirs = types.ModuleType("kubernetes_asyncio")
sys.modules["kubernetes_asyncio"] = theirs
"""
LOAD = """
from shared.kube import loaders
assert loaders.kube_config().KubeConfigLoader and loaders.incluster_config().InClusterConfigLoader
assert loaders.kube_config() is loaders.kube_config()
"""
AFTER = """
import sys
print([name for name in sys.modules if name.startswith(("kubernetes_asyncio", "aiohttp"))])
"""
SAME = """
assert sys.modules["kubernetes_asyncio"] is theirs
"""


@pytest.mark.parametrize(
    ("code", "left"),
    [(LOAD + AFTER, "[]"), (BEFORE + LOAD + SAME + AFTER, "['kubernetes_asyncio']")],
    ids=["none", "imported by a plugin"],
)
def test_a_plugin_that_imports_the_library_gets_its_own(code: str, left: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == (left, "")
