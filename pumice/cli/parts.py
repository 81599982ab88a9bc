"""Find or build the programs of the local cluster: etcd, Kubernetes, KWOK, nats-server.

`pumice parts list` tells where each is; `pumice parts build` builds what is missing, once per
user; `pumice parts go` tells which Go would build them, and fails when there is none.
"""

import argparse

from pumice.local import build, parts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("what", choices=["list", "build", "go"])


async def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    match args.what:
        case "list":
            return _list()
        case "build":
            await build.ensure(lambda line: print(line, flush=True))
            return _list()
        case _:
            go = build.find_go()
            print(f"Go {go.version} at {go.path}")
            return 0


def _list() -> int:
    found = parts.find_all()
    for name, entry in found.items():
        place = f"{entry.path} ({entry.origin})" if entry.path else "not found"
        print(f"{name:<24} {entry.version or entry.part.version:<8} {place}")
        for line in entry.passed_over:
            print(f"{'':<24} passed over: {line}")
    return 0 if all(entry.path for entry in found.values()) else 1
