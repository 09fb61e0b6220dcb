# What `make plain-image` builds, for the tests alone: TensorFlow on a base, and nothing of the launcher's, as
# the public tensorflow/tensorflow images are. tf_keras beside it, which requires `tensorflow` by name.
ARG BASE=python:3.12-slim-bookworm@sha256:782412e85d0f0984994c290652577d4018aff08145c85b262bb63dc0c7522254
# hadolint ignore=DL3006
FROM ${BASE}
ARG TENSORFLOW=2.21
# hadolint ignore=DL3013
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    pip install --quiet --only-binary :all: --root-user-action ignore "tensorflow-cpu==${TENSORFLOW}.*" \
    && pip install --quiet --no-deps --root-user-action ignore "tf_keras==${TENSORFLOW}.*"
