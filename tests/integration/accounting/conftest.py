"""Both databases, empty, with accounting's tables."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

from services.accounting.adapters.database import engine_of
from services.accounting.adapters.store import AccountingDatabase
from shared.runtime.values import Secret
from tests.integration.accounting.postgres import postgres, programs
from tests.support.wait import until


@pytest_asyncio.fixture(params=["sqlite", "postgresql"])
async def engine(request, tmp_path) -> AsyncIterator[AsyncEngine]:
    if request.param == "sqlite":
        engine = engine_of(f"sqlite:///{tmp_path}/usage.db", Secret())
        yield engine
        await engine.dispose()
        return
    if (folder := programs()) is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    async with postgres(folder) as url:
        engine = engine_of(url, Secret())
        yield engine
        await engine.dispose()


@pytest_asyncio.fixture
async def store(engine: AsyncEngine) -> AccountingDatabase:
    store = AccountingDatabase(engine)

    async def migrated() -> bool:
        await store.migrate()
        return True

    await until(migrated, describe="the database takes connections")
    return store
