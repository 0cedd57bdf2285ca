"""The kernel table: Python names for the native inner loops, with the types of the generated stub.

`steepest.kernels.reference` holds the slow, obvious NumPy definition of each; the tests compare the two.
"""

from steepest._native import *  # noqa: F403
