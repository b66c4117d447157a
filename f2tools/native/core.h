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

#define CORE 10

/* One per file: its functions, for module.c. */
extern PyMethodDef checksum_methods[], counts_methods[], merge_methods[], pairing_methods[], records_methods[], sequential_methods[], hostfiles_methods[];
extern PyMethodDef words_methods[], dentries_methods[];

/* What a file must have made before its first function is called. */
void checksum_begin(void);
