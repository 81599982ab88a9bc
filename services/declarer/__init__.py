"""The declarer: makes the streams and durable consumers, and keeps them in being.

The one identity on the bus that may. It reads and writes no message. Several replicas do no harm.
"""
