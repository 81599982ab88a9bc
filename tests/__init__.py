"""The tests of all of Pumice; a package, so that packages below it have the names of their path."""
