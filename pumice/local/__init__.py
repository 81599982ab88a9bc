"""The local stack: real Kubernetes parts, NATS and our services on one machine, without root.

`parts` finds the programs and `build` makes those that are missing; `process` runs one program,
`control_plane` the API server's side with NATS, `stack` the whole with our services. The command
line, the demo and the tests all go through `stack.LocalStack`, so that they show the same thing.
Servers in memory are in `pumice.embedded`.
"""
