"""`make node-check`: a real cluster of two nodes on this machine, Pumice on it, real jobs in it."""
