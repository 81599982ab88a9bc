"""Mechanism: ledger, session, journal, hooks, tiers, explanation."""
