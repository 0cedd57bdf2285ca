"""The kernel table: Python names for the native inner loops, with the types of the generated stub.

`steepest.kernels.reference` holds the slow, obvious NumPy definition of each; the tests compare the two.
"""

import numpy

from steepest._native import *  # noqa: F403

# glibc fetches every large block from the system, page by page, and gives it back when it is freed, until a block as
# large has been freed once. No page of this one is touched, so it costs nothing; a fit or a prediction of 200,000 rows
# takes up to a fifth less time (decision 97). Other allocators do not care.
numpy.empty(31 << 20, numpy.uint8)
