"""The command line `pumice`: one module per command, found by the table in `main`."""
