# Two images, `--target launcher` and `--target worker`; `make images` builds both. docs/images.md says how to
# build behind a proxy or with an index of one's own, and how to use the images without a registry.

# Any Linux with Python 3.10 to 3.13 as python3, its venv module, libstdc++ and CA certificates.
# The digest is that of the index for all platforms, of Python 3.12.14 in September 2026, as several public
# Dockerfiles record it from Docker Hub; `docker buildx imagetools inspect python:3.12-slim-bookworm` prints the
# present one.
ARG BASE=python:3.12-slim-bookworm@sha256:782412e85d0f0984994c290652577d4018aff08145c85b262bb63dc0c7522254
# What TensorFlow runs on: cpu or gpu (NVIDIA, CUDA from PyPI's wheels: about 6 GB).
ARG VARIANT=cpu


FROM ${BASE} AS build
RUN python3 -m venv /build && python3 -m venv --without-pip /opt/venv \
    # Found by its path file and not by PYTHONPATH, which a user may set for a program's own sake.
    && /opt/venv/bin/python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > /build/site-packages \
    && echo /opt/tf-launcher/lib > "$(cat /build/site-packages)/tf-launcher.pth"
COPY requirements/lock.txt requirements/select.py /build/
# Hashes are required, nothing is built, and nothing but what the lock names is installed.
ENV INSTALL="/build/bin/pip --python /opt/venv/bin/python3 --disable-pip-version-check install --quiet \
    --no-compile --no-deps --only-binary :all: --require-hashes --root-user-action ignore" \
    # The root file system is read-only where the images run: all is compiled here, and never checked again.
    COMPILE="/build/bin/python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash"


FROM build AS launcher-packages
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    python3 /build/select.py /build/lock.txt jinja2 kubernetes packaging pydantic pyyaml rich urllib3 websocket-client kopf prometheus-client -aiohttp-retry \
    > /build/launcher.txt \
    && ${INSTALL} -r /build/launcher.txt
# The Kubernetes client's asynchronous half, which alone needs aiohttp-retry, is as large as the other; of the latter's
# generated modules, 33 MB of text, only the compiled form is kept.
RUN kubernetes="$(cat /build/site-packages)/kubernetes" \
    && rm -r "${kubernetes}/aio" \
    && ${COMPILE} -b "${kubernetes}/client/api" "${kubernetes}/client/models" \
    && find "${kubernetes}/client/api" "${kubernetes}/client/models" -name '*.py' -delete \
    && ${COMPILE} /opt/venv


FROM build AS worker-cpu-packages
# Each machine's own of the two: tensorflow-cpu is for x86-64. tf_keras requires `tensorflow` by name and works
# with either.
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    python3 /build/select.py /build/lock.txt tensorflow-cpu tensorflow tf-keras tensorboard obstore > /build/worker.txt \
    && ${INSTALL} -r /build/worker.txt

FROM build AS worker-gpu-packages
COPY requirements/gpu.txt /build/
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    ${INSTALL} -r /build/gpu.txt

# hadolint ignore=DL3006
FROM worker-${VARIANT}-packages AS worker-packages
# Where the base has no strip: the package, which is bookworm's, in its own words.
ARG BINUTILS=binutils=2.40-2
# hadolint ignore=DL3008
RUN command -v strip > /dev/null || { apt-get update \
    && apt-get install --yes --no-install-recommends "${BINUTILS}" && rm -rf /var/lib/apt/lists/*; }
# What nothing reads at run time: 200 MB of symbols, C++ headers, the packages' own tests, type stubs, and libclang,
# with which TensorFlow was built.
RUN find /opt/venv -path '*/tensorflow/*' -name '*.so*' -exec strip --strip-unneeded {} + \
    && find /opt/venv \( -type d \( -path '*/tensorflow/include' -o -path '*/clang/native' \
    -o -name tests -o -name testdata \) \
    -o -type f \( -name '*_test.py' -o -name '*.pyi' -o -name '*.h' -o -name '*.a' \) \) -prune -exec rm -rf {} +
RUN ${COMPILE} /opt/venv


FROM launcher-packages AS launcher-code
COPY launcher /code/launcher
COPY manifests /code/manifests
# The runtime travels from here to other images; all of the example's images are in its own alone.
COPY worker /code/worker
RUN rm -r /code/worker/data/fashion-mnist && ${COMPILE} /code \
    && PYTHONPATH=/code /opt/venv/bin/python3 -c 'from launcher.plan import rendering; rendering.compile_templates()'

FROM build AS worker-code
COPY worker /code/worker
RUN ${COMPILE} /code


FROM ${BASE} AS runtime
# Libraries look their user up; nobody logs in.
RUN echo 'tf-launcher:x:65532:65532::/tmp:/usr/sbin/nologin' >> /etc/passwd \
    && echo 'tf-launcher:x:65532:' >> /etc/group
ENV PATH=/opt/venv/bin:${PATH} \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /tmp
LABEL org.opencontainers.image.licenses=Apache-2.0 \
    org.opencontainers.image.vendor=tf-launcher


FROM runtime AS launcher
COPY --from=launcher-packages /opt/venv /opt/venv
COPY --from=launcher-code /code /opt/tf-launcher/lib
ENTRYPOINT ["python", "-m", "launcher"]
CMD ["--help"]
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title=tf-launcher \
    org.opencontainers.image.description="Starts and follows multi-worker TensorFlow training on Kubernetes" \
    org.opencontainers.image.version=${VERSION} \
    org.opencontainers.image.revision=${REVISION}


FROM runtime AS worker
COPY --from=worker-packages /opt/venv /opt/venv
COPY --from=worker-code /code /opt/tf-launcher/lib
# Kubernetes' own stop signal; the runtime leaves on it.
STOPSIGNAL SIGTERM
EXPOSE 2222
CMD ["python", "-m", "worker"]
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title=tf-launcher-worker \
    org.opencontainers.image.description="What every task of a tf-launcher run is: TensorFlow and the worker runtime" \
    org.opencontainers.image.version=${VERSION} \
    org.opencontainers.image.revision=${REVISION}
