"""Visibility: answers why, when and what if, under the cluster's own rules of access."""
