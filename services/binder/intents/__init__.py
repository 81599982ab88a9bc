"""The next step of an intent, given the command and the API server's answer. Pure.

`steps` holds what all intents share, `bind` and `evict` the steps of the two, `volumes` those of a
claim, `bounds` what an intent may say at all, `desired` the difference between a desired and a
present status.
"""
