"""GPUs by way of Triton: kernels as Triton functions, compiled and launched."""
