"""What kernels that are usable without the compiler have in common: operators of torch made from
them, cheap launches, launches that overlap, and checks of their arguments. See `anyshape.moe` and
`anyshape.attention`.
"""
