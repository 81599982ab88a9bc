"""The same rows in SQLite and in PostgreSQL."""

import pytest
from sqlalchemy.exc import DBAPIError

from services.accounting.adapters.store import Gap
from tests.integration.accounting.written import AT, JOB, T, allocation, changes


async def test_rows_are_read_as_they_were_written(store):
    open_row = allocation("open", scalars={"nvidia.com/gpu": 4000})
    await store.write(changes(open_row, allocation("done", ended=T + 60)), AT)
    assert await store.open_rows() == ([open_row], [JOB])
    assert await store.position("EVENTS") == AT
    assert await store.rows(["open", "none"], ["j"]) == ([open_row], [JOB])


async def test_a_row_that_is_written_again_is_replaced(store):
    await store.write(changes(allocation("a")), AT)
    done = allocation("a", ended=T + 5, reason="Completed")
    await store.write(changes(done), AT)
    assert (await store.rows(["a"], [])) == ([done], [])


async def test_nothing_is_written_of_a_transaction_that_fails(store):
    broken = Gap(stream="EVENTS", begin=T, end=None, reason="")  # type: ignore[arg-type]
    with pytest.raises(DBAPIError):
        await store.write(changes(allocation("a", ended=T + 60)), AT, [broken])
    assert await store.rows(["a"], ["j"]) == ([], [])
    assert (await store.position("EVENTS")).sequence == 0
