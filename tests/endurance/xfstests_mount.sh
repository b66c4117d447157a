# What xfstests can't know of a volume that is mounted by FUSE: it can be made anew, at any size, be checked, and lose its
# power.  common/rc and common/dmflakey read this at their ends.

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

# Where a limit can't be raised it stays as it is: those tests want many open files, or clean up at their ends.
ulimit() { builtin ulimit "$@" 2> /dev/null || [ "$1" = -n ] || [ "$2" = unlimited ] || builtin ulimit "$@"; }

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

# The kernel does not hand sync(2) and syncfs(2) on to a server; fsync of a directory makes all safe.
sync() {
    command sync "$@"
    [ $# != 0 ] || _sync_fs "$SCRATCH_MNT"
    [ $# != 0 ] || _sync_fs "$TEST_DIR"
}

_sync_fs() {
    local mounted=$(findmnt -rn -o TARGET -t fuse.f2tools -T "$1")
    [ -z "$mounted" ] || command sync "$mounted"
}

# Power is lost by killing the server, where the kernel's file systems are shut down or their device drops what is
# written.
_lose_power() {
    local server
    for server in $(pgrep -f "mount.fuse.f2tools $SCRATCH_DEV "); do
        kill -9 "$server"
        while kill -0 "$server" 2> /dev/null; do sleep 0.1; done
    done
}

_require_scratch_shutdown() { :; }

_require_scratch_shutdown_and_syncfs() { _notrun "a server that was killed does not answer syncfs"; }

_scratch_shutdown() {
    [ "$1" != -f ] || _sync_fs "$SCRATCH_MNT"
    _lose_power
}

_require_dm_target() { [ "$1" = flakey ] || _notrun "needs dm-$1 below a block device"; }

_require_flakey_with_error_writes() { _notrun "needs dm-flakey below a block device"; }

_init_flakey() { FLAKEY_DEV=$SCRATCH_DEV; }

_cleanup_flakey() { _unmount "$SCRATCH_MNT" > /dev/null 2>&1; }

_load_flakey_table() {
    case $1 in
        "$FLAKEY_DROP_WRITES") _lose_power ;;
        "$FLAKEY_ERROR_WRITES") _notrun "needs dm-flakey below a block device" ;;
    esac
}
