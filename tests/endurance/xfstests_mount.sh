# What xfstests can't know of a volume that is mounted by FUSE: it can be made anew, at any size, and checked.
# common/rc reads this at its end.

_fs_type() { _df_device "$1" | $AWK_PROG '{ sub(/^fuse\.f2tools$/, "fuse", $2); print $2 }'; }

_is_dev_mounted() { findmnt -rncv -S "$1" -o TARGET | head -1; }

_is_dir_mountpoint() { findmnt -rncv -o TARGET "$1" | head -1; }

_scratch_mkfs() { _try_scratch_mkfs_sized "$XFSTESTS_BYTES" "" "$@"; }

_try_scratch_mkfs_sized() {
    local bytes=$1
    [ -z "$2" ] || [ "$2" = 4096 ] || _notrun "blocks of F2FS have 4096 bytes"
    shift
    [ $# = 0 ] || shift
    rm -f "$SCRATCH_DEV"
    f2tools mkfs --size "$bytes" $MKFS_OPTIONS "$@" "$SCRATCH_DEV"
}

# An image is checked when it is unmounted, and mounted again.
_check_test_fs() { _check_image "$TEST_DEV" "$TEST_DIR" _test_mount; }

_check_scratch_fs() { _check_image "${1:-$SCRATCH_DEV}" "$SCRATCH_MNT" _scratch_mount; }

_check_image() {
    local was=$(_is_dev_mounted "$1") bad=0
    [ -z "$was" ] || _unmount "$2"
    f2tools fsck "$1" > "$tmp.fsck" 2>&1 || bad=1
    if [ $bad = 1 ]; then
        _log_err "f2tools fsck complains of $1"
        cat "$tmp.fsck" >> "$seqres.full"
    fi
    rm -f "$tmp.fsck"
    [ -z "$was" ] || $3 || bad=1
    [ $bad = 0 ] || status=1
    return $bad
}
