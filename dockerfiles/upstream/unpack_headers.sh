#!/bin/sh
# Unpacks Debian packages of headers below /opt/headers, without their dependencies: gigabytes of libraries, which are
# PyTorch's own at run time. The image knows their suite already.
#
#   unpack_headers.sh "suite:package,package"     or nothing, if the image has the headers
set -euf

suite=${1%%:*}
[ -n "$suite" ] || exit 0
folder=$(mktemp -d)
cd "$folder"
apt-get -qq -o Acquire::Check-Valid-Until=false update
# shellcheck disable=SC2046  # the list is meant to be split
apt-get -qq -o APT::Sandbox::User=root download $(echo "${1#*:}" | tr ',' '\n' | sed "s,\$,/$suite,")
find . -name '*.deb' -exec dpkg-deb --extract {} /opt/headers \;
rm -r "$folder"
# find, because set -f stops the shell's globbing.
find /var/lib/apt/lists /var/cache/apt -type f -delete
