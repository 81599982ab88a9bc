"""Leader election: which process does what only one process may do.

Three questions, one mechanism for each:

* Which replica of a service leads? `leader_elector.LeaderElector`, an elector for a role.
* Which replica owns a partition of the jobs? `partition_elector.PartitionElector`, an elector for
  each partition of a service, over the live `members.Members`.
* Which installation acts in the cluster: this one, another one or Volcano? The leader of the cache
  holds Volcano's Leases in the API server (`installation_elector.InstallationElector`). It says so
  in each marker, and the other services read it there (`installation.InstallationLeadership`).

Words, as client-go and NATS have them:

* lease: a record with at most one holder. The holder renews it; a candidate takes it over when it
  was not renewed for long enough. `lease.Lease` is one on the bus, written by compare-and-set.
  `cluster_lease` has the rules of one in the API server.
* leadership term: the time from taking a lease to losing or releasing it.
* fencing token: the sequence of the message that a leader writes at the start of its term on each
  stream that is its own. Each of its publishes carries the token, and the server refuses one that
  is not the newest. So a leader that was suspended and wakes up changes nothing.
* presence: a holder listens on a subject. Once nobody does, its process is dead, and the takeover
  need not wait until the lease expires.
* member: a live process of a service, which announces itself once per second.

Times on the bus: renewal every 0.4 s, the holder stops 2 s after its last renewal, a takeover comes
3 s after it, or 0.3 s after the holder's connection is gone. A holder that ends in order releases
its lease at once. ADR 17 has the reasons, ADR 20 those for the Leases in the cluster.
"""
