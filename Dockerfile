# One image for everything: each service is `python -P -m services.<name>` in it.
# Behind a package mirror: docker build --build-arg PIP_INDEX_URL=https://…/simple .
# The tag of the base is held to pumice/local/versions.toml by a test.
FROM docker.io/library/python:3.13-slim AS build

ARG PIP_INDEX_URL
WORKDIR /src
RUN python -m venv /opt/pumice
# The dependencies have a layer of their own: it is made anew only when the lock changes.
COPY requirements/base.txt requirements/base.txt
RUN /opt/pumice/bin/pip install --no-cache-dir --disable-pip-version-check \
    --require-hashes -r requirements/base.txt
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY shared shared
COPY services services
COPY pumice pumice
COPY distributions distributions
RUN /opt/pumice/bin/pip install --no-cache-dir --disable-pip-version-check \
    --no-build-isolation --no-deps . ./distributions/services

FROM docker.io/library/python:3.13-slim

COPY --from=build /opt/pumice /opt/pumice
ENV PATH=/opt/pumice/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /tmp
CMD ["pumice", "--help"]
