module pumice.invalid/node-check/pause

go 1.26.0
