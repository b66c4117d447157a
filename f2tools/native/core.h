/* What the files of the compiled core share.
 *
 * A function here does what a function in Python beside it does, and nothing else: it takes buffers and numbers, checks
 * every index against the buffer that it goes into, and calls nothing of Python while it works without the GIL.  A
 * signature that changes, or a result, raises CORE here and in __init__.py: a core built from older files is not used.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>

#define CORE 11

/* One per file: its functions, for module.c. */
extern PyMethodDef checksum_methods[], counts_methods[], merge_methods[], pairing_methods[], records_methods[], sequential_methods[], hostfiles_methods[];
extern PyMethodDef words_methods[], dentries_methods[], placing_methods[];

/* Whether the parts of a directory's area lie in it and don't overlap, as `dentry_shape` of layout/dentry.py has them. */
static inline int is_shape(Py_ssize_t size, Py_ssize_t slots, Py_ssize_t table_at, Py_ssize_t names_at)
{
    return size > 0 && size <= UINT16_MAX && slots > 0 && slots <= size / (11 + 8) && table_at >= (slots + 7) / 8 &&
           table_at <= size && names_at <= size && names_at >= table_at + 11 * slots && names_at + 8 * slots <= size;
}

/* What a file must have made before its first function is called. */
void checksum_begin(void);
