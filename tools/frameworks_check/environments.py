"""Python environments of frameworks that come from PyPI: made once, of locked requirements."""

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pumice.local.errors import LocalError
from pumice.local.parts import cache_dir

_LOCKS: Final = Path(__file__).parents[2] / "requirements"
_MEGABYTES: Final = {"airflow": 450, "dask": 350, "spark": 520}
"""What environments take on the disk."""


def pinned(name: str, package: str) -> str:
    """Return the version of a package in `requirements/<name>.txt`."""
    found = re.search(
        rf"^{re.escape(package)}==(\S+)", _lock(name).read_text("utf-8"), re.MULTILINE
    )
    assert found is not None, f"{_lock(name)} does not pin {package}"
    return found[1]


def is_made(name: str) -> bool:
    """Tell whether an environment is in the cache."""
    return _stamp(name).exists()


def cost(names: Iterable[str]) -> str:
    """Return a line with the cost of those environments that are missing, "" for none."""
    missing = sorted(name for name in {*names} if not is_made(name))
    if not missing:
        return ""
    size = sum(_MEGABYTES[name] for name in missing)
    return f"to be installed from PyPI, once: {', '.join(missing)}; {size} MB stay"


def environment(name: str) -> Path:
    """Return the folder of an environment with `requirements/<name>.txt`, after making it.

    Raises LocalError if its packages cannot be installed.
    """
    stamp = _stamp(name)
    folder = stamp.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet")
            flags = ("--disable-pip-version-check", "--require-hashes", "-r", _lock(name))
            for command in ((sys.executable, "-m", "venv", "--clear", folder), (*pip, *flags)):
                if subprocess.run(command, check=False).returncode:
                    raise LocalError(f"{folder} cannot be made; see above")
            stamp.touch()
    return folder


def packages(name: str) -> Path:
    """Return the folder of the packages of an environment, after making it."""
    [found] = environment(name).glob("lib/python*/site-packages")
    return found


def spark_home() -> Path:
    """Return the folder of Spark. Raises LocalError without Java, too."""
    if shutil.which("java") is None:
        raise LocalError("Spark needs Java 17: apt-get install openjdk-17-jre-headless")
    return packages("spark") / "pyspark"


def _lock(name: str) -> Path:
    return _LOCKS / f"{name}.txt"


def _stamp(name: str) -> Path:
    """Return the file that says that an environment is whole."""
    digest = hashlib.sha256(_lock(name).read_bytes() + sys.version.encode()).hexdigest()[:12]
    return cache_dir() / "frameworks" / f"{name}-{digest}" / ".made"
