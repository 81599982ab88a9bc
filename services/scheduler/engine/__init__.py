"""Mechanism of scheduling: cluster state, session, placement, desired statuses, plan.

Pure: no clock, no I/O, no log; `now`, `seed` and the configuration come in, a plan goes out. The
engine never imports policy (actions and plugins), policy imports the engine.

What the scheduler's shell uses
-------------------------------
>>> cluster_state = ClusterState(scheduler_names=("volcano",))
>>> cluster_state.put(kind, key, uid, obj)                # doctest: +SKIP
>>> cluster_state.delete(kind, key, uid)
    One fact: `kind` a token of `shared.api.kinds.KINDS` ("pods", "nodes", …), `obj` the decoded
    view. Kinds beside `cluster_state.kinds` are ignored. Raises `BadFact` for an object with a bad
    value; it is quarantined and counts as absent.
>>> plan = decide(cluster_state, config, now=…, seed=…, cycle=…)   # services.scheduler.decide
    One cycle. The cluster state is the same before and after. No facts may be applied meanwhile.
>>> cluster_state.assume(intent, binds)
>>> cluster_state.assume_evictions(intent, victims)
    After publishing an intent under its id, one call per intent.
>>> cluster_state.assume_statuses(plan)
    After publishing the plan's statuses (podgroups, pods, queues): they count as written until the
    objects show them. Without this call the next plan contains them again.
>>> cluster_state.outcome(intent, [(uid, result), …])
    `result` is a `shared.contracts.messages.Result`. Only CONFLICT, GONE, FAILED and SPARED end an
    assumption; facts end the others.
>>> cluster_state.audit()
    Recomputes node usage from the pods, repairs it and returns the differences: normally none.

After a restart: apply STATE, `assume` what COMMAND holds, `outcome` what OUTCOME says, in this
order or any other, then decide.
"""
