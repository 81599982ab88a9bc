"""States of plugins beside the engine: storage, devices, quotas, budgets, measured load."""
