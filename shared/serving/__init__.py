"""HTTPS servers that the API server calls: their socket, their certificate and its renewal.

Admission's webhooks and the aggregated API of visibility are built on it.
"""
