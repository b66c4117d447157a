/* A small file of an image that is to be made on the host: what its inode says of it, and what it gets in the end. */
#include <stdint.h>

/* Kinds: not made here; where the content of a file lies; a symbolic link, whose target lies inside. */
enum { OTHER = 0, INSIDE = 1, IN_BLOCKS = 2, LINK = 3 };
#define LONGEST_TARGET 4095 /* PATH_MAX without the NUL behind it */

/* A row of PLAIN_FILE in copyout/piece.py. */
struct new_file {
    int64_t kind, mode;
    int64_t mode_after;       /* the mode that it is given when all else is done, or -1 */
    int64_t uid, gid;         /* what it is given, or both -1 */
    int64_t atime_ns, mtime_ns;
    int64_t at;    /* of its content, counted from the first of all inodes' blocks; or of its first address among all */
    int64_t size;
    int64_t count; /* of addresses */
    int64_t xattrs_at, xattrs_size; /* of its attributes in the inodes' blocks; of those that it gets, among such */
};
_Static_assert(sizeof(struct new_file) == 96, "a row has no holes");
