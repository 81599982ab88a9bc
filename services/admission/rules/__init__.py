"""The rules of admission, one module per kind: mutating and validating ones side by side. Pure."""
