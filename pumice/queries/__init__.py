"""Queries of users with a kubeconfig: why a job waits, when it starts, how queues share.

The commands `pumice why | when | what-if | queue | timeline | top` ask the aggregated API
`visibility.pumice.dev` with the user's own credentials; `asking` does that, the other modules turn
answers into text and are pure.
"""
