"""The public face of Pumice: command line, event client, plugin interface, local stack."""
