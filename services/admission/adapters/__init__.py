"""The sides of admission that touch the world: HTTPS, certificates, registration, look-ups."""
