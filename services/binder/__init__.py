"""The binder: carries out on the API server what scheduling decided.

Read in this order: `intents` (what an answer means, pure), `adapters.execute` (one intent from
request to result), `adapters.commands` (one delivery from message to acknowledgement),
`adapters.desired` (statuses), `app` (the wiring). Any number of replicas work at once:
correctness rests on uid preconditions, never on who handles a message.
"""
