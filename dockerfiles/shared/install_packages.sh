#!/bin/sh
# Installs Debian packages, each from its suite.
#
#   install_packages.sh "[suite]:package,package [suite]:package ..."
#
# An empty suite is the image's own. `suite:` prefers the suite for dependencies too. `suite+:` only adds it to the
# image's sources, for packages of an older suite. The source of a new suite is a copy of the image's first one with
# the suite's name in it. Check-Valid-Until is off for frozen archives: their signature is still checked.
set -euf

groups=$1

apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -y -qq -o Acquire::Check-Valid-Until=false \
        -o Dpkg::Options::=--force-unsafe-io -o Dpkg::Use-Pty=0 --no-install-recommends "$@"
}

sources() {
    find /etc/apt/sources.list /etc/apt/sources.list.d -type f -name "$1" 2>/dev/null | sort
}

# Prints a one-line source with the suite's name in place of its own, if there is a source.
one_line_source() {
    list=$(sources '*.list' | xargs -r grep -lE '^deb ' | head -n 1)
    [ -n "$list" ] || return 0
    awk -v suite="$1" '$1 == "deb" {
        field = 2
        if ($2 ~ /^\[/) { while ($field !~ /\]$/) field++; field++ }
        $(field + 1) = suite; print; exit
    }' "$list"
}

# Likewise a source in deb822 form.
stanza_source() {
    list=$(sources '*.sources' | xargs -r grep -lE '^Types:.*\bdeb\b' | head -n 1)
    [ -n "$list" ] || return 0
    awk -v suite="$1" 'BEGIN { RS = "" } /(^|\n)Types:[^\n]*deb/ {
        gsub(/(^|\n)Suites:[^\n]*/, "\nSuites: " suite); print; exit
    }' "$list"
}

add_suite() {
    if sources '*' | xargs -r grep -qE "^(deb|Suites:).*[[:space:]]$1([[:space:]]|\$)"; then
        return
    fi
    line=$(one_line_source "$1")
    stanza=$(stanza_source "$1")
    if [ -n "$line" ]; then
        echo "$line" >"/etc/apt/sources.list.d/$1.list"
    elif [ -n "$stanza" ]; then
        echo "$stanza" >"/etc/apt/sources.list.d/$1.sources"
    else
        echo "install_packages: the base image has no package source to reach '$1' by" >&2
        exit 1
    fi
}

for group in $groups; do
    suite=${group%%:*}
    if [ -n "$suite" ]; then add_suite "${suite%+}"; fi
done
apt update
for group in $groups; do
    suite=${group%%:*}
    case $suite in *+) suite= ;; esac
    # shellcheck disable=SC2046  # the list is meant to be split
    apt install ${suite:+-t "$suite"} $(echo "${group#*:}" | tr ',' ' ')
done
# find, because set -f stops the shell's globbing.
find /var/lib/apt/lists /var/cache/apt -type f -delete
