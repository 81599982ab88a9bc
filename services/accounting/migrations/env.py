"""Alembic's entry point: runs the migrations on the connection that the service passes."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
