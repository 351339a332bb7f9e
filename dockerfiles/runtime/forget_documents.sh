#!/bin/sh
# Removes manuals, translations and change logs. Licences stay.
set -eu
find /usr/share/doc -type f ! -name copyright -delete
find /usr/share/locale /usr/share/man /usr/share/info /var/log -type f -delete
