"""Volcano and Pumice under the same loads, in turn, on control planes of their own."""
