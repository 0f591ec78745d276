"""One folder a kind of device: kernels as text, libraries, native regions, building, launching."""
