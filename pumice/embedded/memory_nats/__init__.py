"""A NATS server with JetStream in memory: the part of it that Pumice uses, behind its own client.

`NatsBus` runs on it unchanged (`MemoryClient` in place of nats-py's `Client`) where all
services are in one process, and in the simulation: what is broken, delayed and restarted there is
met by the real adapter, its inbox, its feeds, its leases. `tests/contract/bus` holds this server
and the real one to the same statements.

`subjects` and `stream` and `consumer` are synchronous and take the time as an argument; `api`
answers JetStream's requests; `server` has the connections and the timers; `client` is the other
end in the same process, `listener` takes clients of other processes over TCP. Nothing is kept on
disk.
"""
