"""The CPU: kernels in C, torch's library, native regions as one C function."""
