"""The migrations make the tables that the code uses."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from services.accounting.adapters.database import engine_of, migrate
from services.accounting.schema import METADATA
from shared.runtime.errors import Rejected
from shared.runtime.values import Secret


def _differences(connection):
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return compare_metadata(context, METADATA)


async def test_migrations_make_the_tables_of_the_schema_and_run_twice(tmp_path):
    engine = engine_of(f"sqlite:///{tmp_path}/usage.db", Secret())
    try:
        await migrate(engine)
        await migrate(engine)
        async with engine.connect() as connection:
            found = await connection.run_sync(_differences)
    finally:
        await engine.dispose()
    assert [each for each in found if "comment" not in each[0]] == []


@pytest.mark.parametrize("url", ["mysql://host/db", "nonsense", "postgresql://ann:word@db/usage"])
def test_other_databases_are_refused(url):
    with pytest.raises(Rejected):
        engine_of(url, Secret())
