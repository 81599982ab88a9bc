"""What to do next, given what is wanted and what the API server answered. Pure.

`replies` is the vocabulary, `retry` the ladder, `bind` and `evict` the steps of the two intents,
`bounds` what either may say at all, `ledger` how far an intent is, `desired` the difference between
a wanted and a present status, `pace` how many requests may be under way.
"""
