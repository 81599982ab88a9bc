"""What is imported at a start is bounded: modules, counted by `-X importtime`, not seconds.

Each module costs about half a millisecond of CPU, six services start at once, and a person waits
for `pumice status`. A count does not depend on how busy the machine is.
"""

import subprocess
import sys

import pytest

from services.admission.rules.catalogue import HOOKS
from services.admission.settings import PATHS

FLAGS_READ = 230
"""Modules until the flags of any service are read."""
RUNNING = {
    "admission": 730,
    "binder": 700,
    "cache": 690,
    "controller": 830,
    "declarer": 640,
    "scheduler": 970,
}
"""Modules of a service that runs."""
STATUS = 245
HEAVY = {"numpy", "aiohttp", "nats", "rich", "prometheus_client"}
"""Packages that no command needs for a look at the cluster, and no service for its flags."""


def imported(*words):
    """Return the modules that a Python command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    lines = (line for line in done.stderr.splitlines() if line.startswith("import time:"))
    return {line.rpartition("|")[2].strip() for line in lines} - {"imported package"}


LOADERS = 60
"""Modules beyond asyncio: 0.02 s of CPU and 2.3 MB. With its models it is 0.3 s and 54 MB."""


def test_credentials_are_loaded_without_the_models_of_kubernetes_asyncio():
    load = "from shared.kube import loaders; loaders.kube_config(); loaders.incluster_config()"
    before = imported("-c", "import asyncio, msgspec, ssl, subprocess")
    modules = imported("-c", f"import asyncio, msgspec, ssl, subprocess; {load}") - before
    assert "kubernetes_asyncio.config.exec_provider" in modules
    assert not models(modules)
    assert "aiohttp" not in packages(modules)
    assert len(modules) <= LOADERS


def models(modules):
    return {module for module in modules if module.startswith("kubernetes_asyncio.client")}


def packages(modules):
    return {module.partition(".")[0] for module in modules}


@pytest.mark.parametrize("service", RUNNING)
def test_flags_are_read_before_the_service_is_imported(service):
    modules = imported("-m", f"services.{service}", "--no-such-flag")
    assert f"services.{service}.settings" in modules
    assert packages(modules) & HEAVY == set()
    assert len(modules) <= FLAGS_READ


@pytest.mark.parametrize("service", RUNNING)
def test_a_service_imports_no_more_than_it_needs(service):
    modules = imported("-c", f"import shared.runtime.service, services.{service}.app")
    assert f"services.{service}.app" in modules
    assert packages(modules) & {"kubernetes_asyncio", "opentelemetry"} == set()
    assert len(modules) <= RUNNING[service]
    if service != "scheduler":
        assert "numpy" not in packages(modules)


def test_status_imports_little(tmp_path):
    modules = imported("-m", "pumice", "status", "--data-dir", str(tmp_path))
    assert "pumice.local.readiness" in modules
    assert packages(modules) & HEAVY == set()
    assert len(modules) <= STATUS


def test_the_paths_of_the_settings_are_those_of_the_rules():
    assert tuple(HOOKS) == PATHS


ANSWER = 288
"""Newer Pythons import a few more of their own; 281 modules on 3.11."""
UNASKED = {"shared.api.batch", "shared.api.core", "shared.api.kinds", "importlib.metadata"}
"""The types of all kinds, and the parser of mails: no answer is made of them."""


def test_an_answer_comes_without_the_services_client(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "current-context: here\n"
        "contexts: [{name: here, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: u}]\n"
    )
    for words in (["why", "train"], ["queue", "tree"], ["what-if", "--drain", "n"]):
        modules = imported("-m", "pumice", *words, "--kubeconfig", str(kubeconfig))
        assert "shared.kube.transport" in modules
        assert packages(modules) & {*HEAVY, "structlog", "services"} == set()
        assert not models(modules)
        assert modules & UNASKED == set()
        assert len(modules) <= ANSWER


VCCTL_HELP = 85
VCCTL_LIST = 280


def test_help_of_vcctl_comes_without_a_client():
    modules = imported("-c", "from pumice.vcctl.main import main; main('vcctl', ['--help'])")
    assert "pumice.vcctl.commands" in modules
    assert packages(modules) & {*HEAVY, "asyncio", "msgspec", "yaml", "shared"} == set()
    assert len(modules) <= VCCTL_HELP


def test_a_list_of_vcctl_comes_without_the_services_client():
    line = "['queue', 'list', '-s', 'http://127.0.0.1:1']"
    modules = imported("-c", f"from pumice.vcctl.main import main; main('vcctl', {line})")
    assert "shared.kube.transport" in modules
    assert packages(modules) & {*HEAVY, "structlog"} == set()
    assert len(modules) <= VCCTL_LIST
