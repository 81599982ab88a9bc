"""A PostgreSQL server of its own for a test, from the programs that are installed."""

import asyncio
import os
import pwd
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pumice.local.ports import free_port
from tests.support.wait import until

DEBIAN = Path("/usr/lib/postgresql")


def programs() -> Path | None:
    """Return the folder of `initdb` and `postgres`, None if they are not installed."""
    folders = sorted(DEBIAN.glob("*/bin"), reverse=True)
    found = shutil.which("initdb")
    folders += [Path(found).resolve().parent] if found else []
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@asynccontextmanager
async def postgres(programs: Path) -> AsyncIterator[str]:
    """Run a server and yield the URL of its database; as root it runs as the user `postgres`."""
    account = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
    identity: dict[str, Any] = {}
    if account is not None:
        identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    with tempfile.TemporaryDirectory(prefix="pumice-postgres-") as data:
        if account is not None:
            os.chown(data, account.pw_uid, account.pw_gid)
        initdb = await asyncio.create_subprocess_exec(
            *(programs / "initdb", "-D", data, "-U", "pumice", "--auth=trust", "--no-sync"),
            stdout=asyncio.subprocess.DEVNULL,
            **identity,
        )
        assert await initdb.wait() == 0
        port = free_port()
        server = await asyncio.create_subprocess_exec(
            *(programs / "postgres", "-D", data, "-p", str(port), "-k", data, "-h", "127.0.0.1"),
            stderr=asyncio.subprocess.DEVNULL,
            **identity,
        )
        try:

            async def listens() -> bool:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return True

            await until(listens, describe="PostgreSQL listens")
            yield f"postgresql://pumice@127.0.0.1:{port}/postgres"
        finally:
            server.terminate()
            await server.wait()
