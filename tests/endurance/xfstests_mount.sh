# What xfstests can't know of a volume that is mounted by FUSE: it can be made anew, at any size, be checked, and lose its
# power; and that what the suite knows of F2FS holds for it.  Files of common/ read this at their ends (HOOKED in suite.py).

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
    case " $* " in *" -f "*) _sync_fs "$SCRATCH_MNT" ;; esac
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

# What some tests ask of a block device can be asked of an image; not to be suspended, swapped to, mounted twice or made
# read-only.
_require_local_device() { case $seq in 076 | 388) ;; *) _notrun "require $1 to be local device" ;; esac; }

_require_block_device() {
    case $seq in 067 | 299 | 300 | 418 | 627) ;; *) _notrun "require $1 to be valid block disk" ;; esac
}

blockdev() {
    case $1 in
        --getsz) echo $(($(stat -c %s "$2") / 512)) ;;
        --getsize64) stat -c %s "$2" ;;
        *) command blockdev "$@" ;;
    esac
}

# -- what holds for F2FS, by whatever it is mounted -------------------------------------------------------------------

_require_names_are_bytes() { :; }

_filesystem_timestamp_range() { echo "$((1 << 63)) $(((1 << 63) - 1))"; }

_acl_get_max() { echo 511; } # F2FS has room for 532; the kernel's FUSE has one for a page of them

_label_get_max() { echo 255; }

_has_casefold_kernel_support() { case $OPTIONS in *server=pyfuse3*) false ;; esac; } # it has no ioctls

_scratch_mkfs_casefold() { _scratch_mkfs -C utf8; }

_scratch_mkfs_casefold_strict() { _scratch_mkfs -C utf8:strict; }

_scratch_mount_casefold() { _scratch_mount; }

_scratch_mount_casefold_strict() { _scratch_mount; }

# A test of casefolding wants to read in the kernel's log how F2FS was mounted.
[ "$seq" != 556 ] || _check_dmesg_for() { :; }

_require_logstate() { :; }

_print_logstate() {
    if dump.f2fs "$SCRATCH_DEV" | tee -a "$seqres.full" | grep -q unmount; then
        echo "clean log"
    else
        echo "dirty log"
    fi
}

_get_log_configs() {
    local more
    for more in default_permissions background_gc=off discard active_logs=2 active_logs=4 fsync_mode=strict writeback_cache \
        active_logs=2,discard fsync_mode=strict,background_gc=off writeback_cache,active_logs=4; do
        echo "$seq $OPTIONS,$more"
    done
}
