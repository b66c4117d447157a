#!/bin/sh
# xfstests_inside.sh TEST: one test, in mount and process namespaces of its own (unshare).  All that it can reach of this
# machine is as it was afterwards: its users, mount helper, /tmp and images lie in $WORK, which is mounted on /mnt.
set -eu
# Mounts of others that were there would live on in here, and whoever unmounts them would wait for the end of this test.
while read -r _ directory type _; do
    case $type in fuse*) umount -l "$(printf %b "$directory")" ;; esac
done < /proc/self/mounts
mkdir -p "$WORK/sbin" "$WORK/tmp" "$WORK/test" "$WORK/scratch" "$WORK/results"
chmod 1777 "$WORK/tmp"
cp /etc/passwd /etc/group "$WORK"
for user in fsgqa fsgqa2 123456-fsgqa; do
    number=$((7000 + ${#user}))
    echo "$user:*:$number:$number::/tmp:/bin/bash" >> "$WORK/passwd"
    echo "$user:x:$number:" >> "$WORK/group"
done
ln -sf "$(command -v mount.fuse.f2tools)" "$WORK/sbin"
for name in drop_caches compact_memory; do
    [ -e /proc/sys/vm/$name ] || continue
    touch "$WORK/$name"
    mount --bind /proc/sys/vm/$name "$WORK/$name"
done
mount --bind "$WORK/passwd" /etc/passwd
mount --bind "$WORK/group" /etc/group
mount -t overlay over -o "lowerdir=$WORK/sbin:/usr/sbin" /usr/sbin
# Of the settings of the machine only the caches can be touched, and memory be compacted.
mount --bind /proc/sys /proc/sys
mount -o remount,ro,bind /proc/sys
for name in drop_caches compact_memory; do
    [ ! -e "$WORK/$name" ] || mount --bind "$WORK/$name" /proc/sys/vm/$name
done
mount -o remount,ro,bind /sys
mount --bind "$WORK" /mnt
mount --bind "$WORK/tmp" /tmp
unset TMPDIR
export HOST_OPTIONS=/mnt/local.config XFSTESTS_BYTES
cat > $HOST_OPTIONS <<END
export FSTYP=fuse FUSE_SUBTYP=.f2tools RESULT_BASE=/mnt/results
export TEST_DEV=/mnt/test.img TEST_DIR=/mnt/test SCRATCH_DEV=/mnt/scratch.img SCRATCH_MNT=/mnt/scratch
export MOUNT_OPTIONS="-o $OPTIONS" TEST_FS_MOUNT_OPTS="-o $OPTIONS"
END
for image in test scratch; do
    f2tools mkfs -q --size "$XFSTESTS_BYTES" /mnt/$image.img
done
./check "$1" || true
for image in test scratch; do
    ! mountpoint -q /mnt/$image || f2tools umount /mnt/$image
done
