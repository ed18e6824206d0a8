#!/bin/sh
# Runs crates/cli/tests/enclosed.rs in a small virtual machine that has cgroups of version 2, where this one has none: as
# root in the root group, and as a user who was given a group.
#
# Emulated, a minute or two; ACCEL=kvm is faster where that works. Needs qemu-system-x86_64, busybox (static), cpio, setpriv
# and a kernel: KERNEL=vmlinuz, or the Debian package of one is fetched (apt-get download) and not installed. Says what is
# missing, and fails, where it can't run. There is no disk, so what is said of page cache is not tried.
set -eu
cd "$(dirname "$0")/.."
for tool in qemu-system-x86_64 busybox cpio gzip ldd setpriv; do
    command -v "$tool" >/dev/null || { echo "cgroup-vm: $tool is missing (Debian: qemu-system-x86, busybox-static, cpio)" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

kernel=${KERNEL:-}
if [ -z "$kernel" ]; then
    package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*\).*/\1/p' | head -1)
    (cd "$work" && apt-get download "$package" >/dev/null && dpkg -x linux-image-*.deb kernel) ||
        { echo "cgroup-vm: no kernel; name one with KERNEL=vmlinuz" >&2; exit 1; }
    kernel=$(echo "$work"/kernel/boot/vmlinuz-*)
fi

# The test finds its programs, and heaptape, where it was built: the machine has them in the same places.
cargo test --profile tests -p heaptape --test enclosed --no-run 2>"$work/build"
test=$(sed -n 's/.*Executable tests\/enclosed.rs (\(.*\))/\1/p' "$work/build")
target=$(dirname "$(dirname "$test")")
tmp=$(dirname "$target")/tmp
# Compiles the programs, whatever comes of the tests here.
"$test" >/dev/null 2>&1 || true
root=$work/root
mkdir -p "$root/bin" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root$tmp/programs" "$root$PWD/crates/cli" "$root$target/deps"
cp "$(command -v busybox)" "$(command -v setpriv)" "$root/bin/"
cp "$test" "$root$test"
cp "$target/heaptape" "$root$target/"
cp -rp tests "$root$PWD/"
for program in "$tmp"/programs/*/enclosed; do
    mkdir -p "$root${program%/*}"
    cp -p "$program" "$root$program"
done
for binary in "$root/bin/setpriv" "$test" "$target/heaptape" "$tmp"/programs/*/enclosed; do
    ldd "$binary" 2>/dev/null | sed -n 's/.*[ \t]\(\/[^ ]*\) (.*/\1/p'
done | sort -u | while read -r library; do
    mkdir -p "$root${library%/*}"
    cp -L "$library" "$root$library"
done
mkdir -p "$root/etc"
echo 'root:x:0:0::/:/bin/sh
user:x:1000:1000::/tmp:/bin/sh' >"$root/etc/passwd"
cat >"$root/init" <<INIT
#!/bin/busybox sh
for tool in \$(/bin/busybox --list); do
    [ -e /bin/\$tool ] || /bin/busybox ln -s busybox /bin/\$tool
done
export PATH=/bin HOME=/tmp XDG_CACHE_HOME=/tmp RUST_BACKTRACE=0
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs none /dev/shm
mount -t cgroup2 none /sys/fs/cgroup
chmod 1777 /tmp /dev/shm
cd $PWD/crates/cli
echo "== root, in the root group"
$test --test-threads 1 --skip page_cache 2>&1
echo "== root: status \$?"
# A user's systemd gives him a group of his own, with the memory controller, and starts the scope in it.
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/user
chown -R 1000:1000 /sys/fs/cgroup/user
chmod 777 $tmp
limit="$target/heaptape limit 50MB --strict --basis resident --quiet --json"
program=\$(echo $tmp/programs/*/enclosed | cut -d' ' -f1)
as_user() {
    (echo 0 >/sys/fs/cgroup/user/cgroup.procs && exec /bin/setpriv --reuid 1000 --regid 1000 --clear-groups "\$@")
}
for case in "touch 30000000 within" "touch 300000000 killed" "raw 300000000 killed" "bomb 61 killed"; do
    set -- \$case
    as_user \$limit /tmp/user.json -- \$program \$1 \$2 >/dev/null
    found=\$(grep -m1 -o '"verdict": "[a-z]*"' /tmp/user.json)
    group=\$(grep -c '"source": "cgroup"' /tmp/user.json)
    rm -f /tmp/user.json
    # What heaptape was in itself is left, empty, for the next to remove.
    rmdir /sys/fs/cgroup/user/*-self
    left=\$(ls -d /sys/fs/cgroup/user/*/ 2>/dev/null | wc -l)
    [ "\$found" = "\"verdict\": \"\$3\"" ] && [ \$group = 1 ] && [ \$left = 0 ] && result=ok || result=FAILED
    echo "user: \$case: \$found, group \$group, left \$left: \$result"
    # Nobody is in it, so it can be as it was.
    echo -memory >/sys/fs/cgroup/user/cgroup.subtree_control
done
echo "== end"
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1 >"$work/initramfs")
timeout "${PATIENCE:-540}" qemu-system-x86_64 -accel "${ACCEL:-tcg}" -cpu max -m 3072 -smp 2 -nographic -no-reboot -net none \
    -kernel "$kernel" -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1 cgroup_no_v1=all" </dev/null | tee "$work/log"
grep -q '^== root: status 0' "$work/log" && grep -q '^== end' "$work/log" && ! grep -q FAILED "$work/log"
