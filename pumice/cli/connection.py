"""The flags that name a NATS server for a subscriber, and the server that they mean."""

import argparse
import os
from collections.abc import Mapping

from pumice.cli.data_directory import add_data_directory
from pumice.directory import default_directory
from pumice.events import Server, find
from pumice.events.server import local


def add_connection(
    parser: argparse.ArgumentParser, environ: Mapping[str, str] = os.environ
) -> None:
    """Add the flags; their defaults come from `environ`."""
    parser.add_argument(
        "--nats",
        default=environ.get("PUMICE_NATS", ""),
        metavar="URL",
        help="NATS server (default: the local cluster's)",
    )
    parser.add_argument("--cluster", default=environ.get("PUMICE_CLUSTER", ""))
    parser.add_argument("--nats-user", default=environ.get("PUMICE_NATS_USER", ""))
    parser.add_argument(
        "--nats-password-file",
        default=environ.get("PUMICE_NATS_PASSWORD_FILE", ""),
        help="file with the password; else the environment's PUMICE_NATS_PASSWORD",
    )
    parser.add_argument(
        "--nats-ca",
        default=environ.get("PUMICE_NATS_CA", ""),
        metavar="FILE",
        help="authority of the server's certificate; turns TLS on",
    )
    add_data_directory(parser)


def server_of(args: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Server:
    """Return the server that was named, or found (`pumice.events.find`). Raises Unreachable."""
    if args.data_dir != default_directory():
        return local(args.data_dir, cluster=args.cluster or "local")
    named = {
        "PUMICE_NATS": args.nats,
        "PUMICE_CLUSTER": args.cluster,
        "PUMICE_NATS_USER": args.nats_user,
        "PUMICE_NATS_PASSWORD_FILE": args.nats_password_file,
        "PUMICE_NATS_CA": args.nats_ca,
    }
    return find({**environ, **{name: word for name, word in named.items() if word}})
