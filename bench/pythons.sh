#!/bin/sh
# Lines of Python in stacks, of the newest interpreters: those of Debian's unstable distribution, with its C library, in a folder
# of their own.
#
#     bench/pythons.sh [VERSION…]        (3.14 and 3.15 without any)
#
# Fetches a dozen packages from where this machine has its packages of Debian from; needs curl, xz and dpkg-deb. Then runs
# crates/cli/tests/interpreted.rs with these interpreters besides those that are installed.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -gt 0 ] || set -- 3.14 3.15
index=dists/sid/main/binary-amd64/Packages.xz
mirror=
for place in $(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -v '^ *#' | grep -oE 'https?://[^ ]*/debian/?'); do
    curl -sfI "${place%/}/$index" >/dev/null && mirror=${place%/} && break
done
[ -n "$mirror" ] || { echo "no place of Debian's packages is known here (/etc/apt)" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
curl -sf "$mirror/$index" | xz -d >"$work/packages"

wanted="libc6 libgcc-s1 libexpat1 zlib1g libzstd1"
for version in "$@"; do
    wanted="$wanted python$version-minimal libpython$version-minimal libpython$version-stdlib"
done
for package in $wanted; do
    file=$(awk -v wanted="$package" '$1 == "Package:" { package = $2 } $1 == "Filename:" && package == wanted { print $2 }' "$work/packages")
    [ -n "$file" ] || { echo "there is no package $package any more" >&2; exit 1; }
    curl -sf -o "$work/package.deb" "$mirror/$file"
    dpkg-deb -x "$work/package.deb" "$work/root"
done

interpreters=
for version in "$@"; do
    # By its own loader, for its own C library.
    cat >"$work/python$version" <<END
#!/bin/sh
export PYTHONHOME="$work/root/usr"
exec "$work/root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$work/root/usr/lib/x86_64-linux-gnu" "$work/root/usr/bin/python$version" "\$@"
END
    chmod +x "$work/python$version"
    "$work/python$version" --version
    interpreters="$interpreters:$work/python$version"
done
cd "$root" && HEAPTAPE_PYTHONS=${interpreters#:} cargo test --profile tests -p heaptape --test interpreted
