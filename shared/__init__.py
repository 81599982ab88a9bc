"""Code that several services share; internal."""
