"""`pumice demo`: a cluster, and five gangs that run on it, shown live.

`story` is the run; `feed` brings the API server's watches, `model` folds them into a `Scene`,
`sentences` puts its moments into words, and `view` (a terminal) or `plain` (anything else) shows
them. All that is shown comes from the watches.
"""
