# A builder image with something missing of each kind that the check looks at.

ARG BASE
# hadolint ignore=DL3006
FROM ${BASE}
RUN rm /usr/local/bin/patchelf && \
    rm -r /opt/torch-stable && \
    find / -xdev -name 'oclc_isa_version_908.bc' -delete
ENV ZIG_GLOBAL_CACHE_DIR=
