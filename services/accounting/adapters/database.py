"""Opens the database by its URL and brings its tables to the newest version."""

from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from shared.runtime.errors import Rejected
from shared.runtime.values import Secret

_DRIVERS: Final = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}


def engine_of(url: str, password: Secret) -> AsyncEngine:
    """Return the engine of `sqlite:///PATH` or `postgresql://USER@HOST/NAME`.

    Raises Rejected for a URL of anything else, or with a password in it.
    """
    engine = create_async_engine(_with_driver(url, password))
    if engine.dialect.name == "sqlite":
        event.listen(engine.sync_engine, "connect", _on_sqlite_connect)
    return engine


async def migrate(engine: AsyncEngine) -> None:
    """Create the tables, or change them to the newest version; repeated, it does nothing."""
    async with engine.begin() as connection:
        await connection.run_sync(_upgrade)


def _with_driver(url: str, password: Secret) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise Rejected("the URL of the database cannot be read", field="database") from error
    if parsed.password:
        raise Rejected("the URL holds a password: use --database-password-file", field="database")
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None:
        raise Rejected(
            f"database of kind {parsed.drivername}: only sqlite and postgresql are supported",
            field="database",
        )
    return parsed.set(drivername=driver, password=password.reveal() or None)


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", "services.accounting:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _on_sqlite_connect(connection: object, _: object) -> None:
    """Let reports read while rows are written, and keep what was committed before a crash."""
    cursor = connection.cursor()  # type: ignore[attr-defined]
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
