"""Installation beyond the services themselves: credentials, configuration, steps of Compose.

The NATS server's users, the secrets that they take, and the steps of the Compose stack. Each module
with a `main` is run as `python -P -m pumice.deploy.<module>` from the same image as the services.
"""
