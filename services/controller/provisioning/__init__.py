"""ProvisioningRequests of gangs that wait for nodes."""
