"""What plugins keep beside the engine: storage, devices, quotas, budgets, measured load."""
