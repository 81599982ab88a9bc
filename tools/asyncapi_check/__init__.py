"""Holds docs/events/asyncapi.yaml to public tools: a parser, a generator, and its code at work."""
