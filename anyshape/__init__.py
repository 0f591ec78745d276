"""anyshape: compile PyTorch programs whose shapes are not known. Public names only."""
