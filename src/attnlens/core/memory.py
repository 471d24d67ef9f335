"""Recognise errors that say that memory ran out, whichever library raises them."""

from __future__ import annotations

import errno

# Parts of messages: XLA and PyTorch raise a plain RuntimeError where Python raises MemoryError.
SIGNS = ("RESOURCE_EXHAUSTED", "can't allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, NumPy, XLA, PyTorch or the system says that memory ran out.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(OSError(errno.ENOMEM, "no memory"))
    (True, True)
    >>> is_out_of_memory(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes."))
    True
    >>> is_out_of_memory(RuntimeError("INTERNAL: a failed check"))
    False
    """
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, RuntimeError):
        return any(sign in str(error) for sign in SIGNS)
    return isinstance(error, MemoryError)
