"""Health of the parts of the Compose stack: etcd, the API server, NATS, KWOK.

Their images hold one program and no shell, so that no check can run in them. The container `health`
asks all of them over the network: it logs each change, and its own health check, this program with
`--once`, reports to Compose.
"""

import argparse
import ssl
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

ADDRESSES: Final[Mapping[str, str]] = {
    "etcd": "http://etcd:2381/health",
    "kube-apiserver": "https://kube-apiserver:6443/readyz",
    "nats": "http://nats:8222/healthz",
    "kwok": "http://kwok:10247/healthz",
}
_TIMEOUT_S: Final = 3.0
_EVERY_S: Final = 2.0

Probe = Callable[[str], str]
"""Requests a URL; returns "" on success, else the error."""


def probe_with(ca: Path) -> Probe:
    """Return a probe that trusts the certificate authority in a file."""
    context = ssl.create_default_context(cafile=ca)

    def probe(url: str) -> str:
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S, context=context):  # noqa: S310
                return ""
        except OSError as error:
            return str(error)

    return probe


def failures(probe: Probe, addresses: Mapping[str, str] = ADDRESSES) -> dict[str, str]:
    """Return why, by part, for each part that is not healthy."""
    found = {part: probe(url) for part, url in addresses.items()}
    return {part: why for part, why in found.items() if why}


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return a line for each part whose health has changed."""
    unhealthy = [f"{part}: {now[part]}" for part in now if part not in before]
    return unhealthy + [f"{part}: healthy" for part in before if part not in now]


def _log(lines: Sequence[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def main(argv: Sequence[str]) -> int:
    """Probe once and return the exit code, or probe repeatedly and log changes."""
    parser = argparse.ArgumentParser(prog="pumice.deploy.compose_health")
    parser.add_argument("--ca", type=Path, required=True)
    parser.add_argument("--once", action="store_true")
    given = parser.parse_args(argv)
    probe = probe_with(given.ca)
    known = failures(probe)
    _log(changes({}, known))
    while not given.once:
        time.sleep(_EVERY_S)
        known, before = failures(probe), known
        _log(changes(before, known))
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
