"""Plugins of pytest that run the tests of other projects through anyshape. Those tests are not part
of the project: `tests/README.md` says where they are found."""
