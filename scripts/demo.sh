#!/bin/sh
# The main job on real input: format an image and look at it; then take an image that a real Linux kernel wrote, list it,
# extract it, and hold what came out against the list that the kernel made of the same tree; break, mend, bring back and
# enlarge.  Leaves ./demo.
set -eu
cd "$(dirname "$0")/.."
PATH=$PWD/.venv/bin:$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH SOURCE_DATE_EPOCH=1700000000 COLUMNS=100 PYTHONUTF8=1

case_folder=tests/reference/features
if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi

step() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }

show() { printf '\n%s$ %s%s\n' "$bold" "$*" "$plain"; }

run() {
    show "$*"
    "$@"
}

# The first lines of what a command prints, and how many there are.
head_of() {
    lines=$1
    shift
    show "$*"
    "$@" > demo/.out
    cut -c1-100 demo/.out | head -n "$lines"
    rest=$(($(wc -l < demo/.out) - lines))
    [ "$rest" -le 0 ] || printf '  ... %s more lines\n' "$rest"
    rm -f demo/.out
}

if [ ! -x .venv/bin/f2tools ]; then
    echo "There is no .venv/bin/f2tools yet; 'make demo' sets everything up first." >&2
    exit 1
fi
[ ! -e demo ] || chmod -R u+rwX demo
rm -rf demo
mkdir demo

step "Format an image. It need not exist, and takes no more space than what is in it."
run f2tools mkfs demo/card.img --size 512M -l CARD -r -R 0:0 \
    -O extra_attr,inode_checksum,sb_checksum,compression,casefold,quota -C utf8
printf '  on the disk: %s KiB of %s KiB\n' "$(du -k demo/card.img | cut -f1)" \
    "$(du -k --apparent-size demo/card.img | cut -f1)"
if command -v fsck.f2fs > /dev/null; then
    show "fsck.f2fs --dry-run demo/card.img"
    if fsck.f2fs --dry-run demo/card.img > demo/.out 2>&1 < /dev/null; then
        echo "  fsck.f2fs of f2fs-tools has nothing to say against it"
    else
        cat demo/.out
        exit 1
    fi
    rm -f demo/.out
fi

step "An image that Linux 6.1 wrote: what is it?"
python scripts/demo_check.py unpack "$case_folder/image.zst" demo/kernel.img
run f2tools dump info demo/kernel.img
run f2tools dump segments demo/kernel.img

step "What is in it?"
head_of 16 f2tools dump tree demo/kernel.img / -L 2
head_of 14 f2tools dump ls -l demo/kernel.img /links
run f2tools dump stat demo/kernel.img /verity/v700001
run f2tools dump verify demo/kernel.img

step "Where does a file lie, and whose is a block?"
run f2tools dump map demo/kernel.img /verity/v700001
blkaddr=$(python scripts/demo_check.py address demo/kernel.img /verity/v700001)
run f2tools dump block demo/kernel.img "$blkaddr" --no-hex

step "Take everything out, and compare it with what the kernel saw."
run f2tools dump extract --all demo/kernel.img -o demo/files
run f2tools dump manifest demo/kernel.img -o demo/manifest.json
show "python scripts/demo_check.py compare"
python scripts/demo_check.py compare "$case_folder/manifest.json.gz" demo/manifest.json demo/files

step "Break a copy: a superblock and the heads of both checkpoints are overwritten. Check it, mend it, compare again."
cp --sparse=always demo/kernel.img demo/broken.img
for blkaddr in 0 512 1024; do
    run dd if=/dev/zero of=demo/broken.img bs=4096 count=1 seek=$blkaddr conv=notrunc status=none
done
show "f2tools fsck demo/broken.img"
f2tools fsck demo/broken.img || [ $? = 4 ]
show "f2tools fsck -y --undo demo/before.undo demo/broken.img"
f2tools fsck -y --undo demo/before.undo demo/broken.img || [ $? = 1 ]
run f2tools fsck demo/broken.img
run f2tools dump manifest demo/broken.img -o demo/mended.json
show "python scripts/demo_check.py compare"
python scripts/demo_check.py compare "$case_folder/manifest.json.gz" demo/mended.json demo/files

step "Bring back what was deleted."
python scripts/demo_check.py unpack tests/reference/history-a/image.zst demo/history.img
head_of 8 f2tools undelete demo/history.img -o demo/rescued

step "Let it grow."
run f2tools resize demo/kernel.img 192M --undo demo/resize.undo

step "What did a workload do to the device? A block trace that Linux recorded, the volume before and after."
traces=tests/reference/traces/fileserver
for which in before after; do python scripts/demo_check.py unpack "$traces/$which.img.zst" "demo/$which.img"; done
run f2tools trace analyze "$traces" --image demo/before.img --image-after demo/after.img --html demo/trace.html

step "Done."
cat <<'TEXT'
Everything is in ./demo. To go on:

  .venv/bin/f2tools dump ls -lR demo/kernel.img /small      every file of a directory
  .venv/bin/f2tools dump inode demo/kernel.img /xattr/many  every field of an inode
  .venv/bin/f2tools dump dentries demo/kernel.img / --raw   a directory, deleted names included
  .venv/bin/f2tools dump tar demo/kernel.img | tar -tv      the tree as an archive
  .venv/bin/f2tools dump layout f2fs_nat_entry              the format, field by field
  .venv/bin/f2tools --help                                  and docs/cli.md for all of it
TEXT
