# One image for everything: each service is `python -P -m services.<name>` in it.
# Behind a package mirror: docker build --build-arg PIP_INDEX_URL=https://…/simple .
# The tag of the base is held to pumice/local/versions.toml by a test.
FROM docker.io/library/python:3.13-slim AS build

ARG PIP_INDEX_URL
WORKDIR /src
RUN python -m venv /opt/pumice
# The dependencies have a layer of their own: it is made anew only when the lock changes.
COPY requirements/base.txt requirements/base.txt
RUN /opt/pumice/bin/pip install --no-cache-dir --disable-pip-version-check --no-compile \
    --require-hashes -r requirements/base.txt
COPY requirements/sbom.txt requirements/sbom.txt
RUN python -m venv /opt/sbom && /opt/sbom/bin/pip install --no-cache-dir \
    --disable-pip-version-check --require-hashes -r requirements/sbom.txt
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY shared shared
COPY services services
COPY pumice pumice
COPY distributions distributions
RUN /opt/pumice/bin/pip install --no-cache-dir --disable-pip-version-check --no-compile \
    --no-build-isolation --no-deps . ./distributions/services
# The list of what is inside, and bytecode without times: the same sources give the same files.
RUN /opt/sbom/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml \
    --output-file /opt/pumice/sbom.cdx.json /opt/pumice/bin/python && \
    /opt/pumice/bin/python -m compileall -q -f --invalidation-mode unchecked-hash /opt/pumice/lib

FROM docker.io/library/python:3.13-slim

ARG REVISION
LABEL org.opencontainers.image.title="Pumice" \
    org.opencontainers.image.description="A batch scheduling system for Kubernetes, wire-compatible with Volcano" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.revision="$REVISION"
COPY --from=build /opt/pumice /opt/pumice
ENV PATH=/opt/pumice/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /tmp
CMD ["pumice", "--help"]
