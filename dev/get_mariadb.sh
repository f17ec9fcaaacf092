#!/bin/sh
# Unpack Debian's MariaDB server into a directory, without installing it: nothing of the system changes but apt's lists, and no root
# is needed where those are there already. What the server needs beyond the system's own libraries comes along.
#
#   sh dev/get_mariadb.sh .venv-mariadb
set -eu
target=$1
rm -rf "$target"
mkdir -p "$target/debs"
apt-get update -qq 2>/dev/null || echo "get_mariadb: apt's lists are used as they are" >&2
needed=mariadb-server-core
for package in $(apt-cache depends --important mariadb-server-core | awk '$1 == "Depends:" && $2 !~ /^</ { print $2 }'); do
    dpkg -s "$package" >/dev/null 2>&1 || needed="$needed $package"
done
# As the caller: apt's own user may not be let into the directory.
# shellcheck disable=SC2086
(cd "$target/debs" && apt-get download -qq -o APT::Sandbox::User="$(id -un)" $needed)
for package in "$target"/debs/*.deb; do
    dpkg -x "$package" "$target"
done
rm -r "$target/debs"
test -x "$target/usr/sbin/mariadbd"
