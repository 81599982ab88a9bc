"""`pumice demo`: a cluster, five gangs and what becomes of them, shown while it happens.

`story` is the run; `feed` brings the API server's watches, `model` folds them into a `Scene`,
`sentences` puts its moments into words, and `view` (a terminal) or `plain` (anything else) shows
them. Nothing that is shown comes from anywhere but the watches.
"""
