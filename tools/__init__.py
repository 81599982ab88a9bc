"""Programs for those who work on Pumice; nothing here is part of the distribution."""
