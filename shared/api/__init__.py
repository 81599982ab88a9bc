"""Kubernetes object types as the services see them: typed views, the catalogue of kinds, the CRDs.

A view names the fields that some service reads; msgspec drops the rest while it decodes, so that
decoding with a view *is* the projection that the cache publishes on STATE. On the wire everything
is what Kubernetes and Volcano write (camelCase, RFC 3339 times, quantities as strings). Pure: no
clock, no I/O.

`meta`, `selectors`, `core`, `storage`, `policy`, `scheduling`, `batch`, `cron`, `flow`, `topology`,
`nodeinfo` and `bus` hold the views, `kinds` says where an object is on the API server and how
to decode and encode it, `keys` holds the names of annotations and labels, `crds` and `crdgen` make
the CRDs from the same types.
"""
