"""The sides of admission that do I/O: HTTPS, certificates, registration, look-ups."""
