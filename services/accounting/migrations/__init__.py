"""Migrations of accounting's database, applied by Alembic when the service starts."""
