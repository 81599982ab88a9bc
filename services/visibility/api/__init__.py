"""The aggregated API without I/O: resources, paths, discovery, OpenAPI, tables and refusals."""
