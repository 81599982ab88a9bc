"""`make frameworks-check`: the operators of frameworks that people run, unmodified, on Pumice."""
