"""Queries of users with a kubeconfig: why a job waits, when it starts, how queues share.

The commands `pumice why | when | what-if | queue | timeline | top` send requests to the aggregated
API `visibility.pumice.dev` with the user's credentials (`client`, `workloads`), repeat them for
`--watch` (`refresh`), and render results (`text`, `frame`; both pure).
"""
