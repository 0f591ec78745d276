"""The kernels of the C emitter, printed as Triton: right in Triton's interpreter, and compiled for GPUs that are not here.

In processes of their own, because Triton reads TRITON_INTERPRET when it is imported.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

pytestmark = pytest.mark.timeout(600)
UNLIKE = [
    "layer norm gelu",
    "cross entropy",
    "sum of columns",
    "cumsum",
    "scatter add",
    "scatter amin",
]
"""Kernels that have little in common."""


KERNELS, VALUES = "triton_programs.py", "triton_values.py"


def run(mode, *names, script=KERNELS):
    path = Path(__file__).parent / script
    done = subprocess.run(
        [sys.executable, str(path), mode, *names], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.count("ok ") >= len(names)


def test_every_kernel_is_right_in_the_interpreter():
    run("interpret", "all")


def test_kernels_that_share_a_launch_are_right_in_the_interpreter():
    run("interpret", "1", "2", "5", "40")
    run("chosen-90", "2", "75")


def test_right_in_the_interpreter_where_sizes_are_in_memory():
    run("interpret-sizes-in-memory", *UNLIKE)


def test_extremes_in_memory_of_nans_of_both_signs_are_torchs_and_gelu_is_exact_near_erfs_end():
    run("interpret", "float32", "float64", "tails")


def test_a_maximum_and_the_sum_below_it_are_softmaxs_of_rows_of_infinities_and_nans():
    run("interpret", "online")


def test_the_position_of_an_extreme_is_torchs_in_rows_of_few_numbers():
    run("interpret", "firsts")


def test_shifts_past_the_bits_are_torchs():
    run("interpret", "shifts", script=VALUES)


def test_zeros_have_the_signs_of_torchs():
    run("interpret", "zeros", script=VALUES)


def test_what_is_less_than_no_truth_is_no_one_in_bfloat16():
    run("chosen-80-90", "truths", script=VALUES)


def test_kernels_set_flags_of_indices_out_of_range():
    run("interpret", "flags")


def test_every_kernel_compiles_for_sm_90():
    run("chosen-90", "all")


def test_kernels_compile_in_every_way_for_three_architectures():
    run("every-80-90-100", "layer norm gelu", "cumsum", "scatter amin")


def test_every_scalar_operator_compiles_for_sm_90():
    run("scalars-90", "float32", "int64", "uint8")


@pytest.mark.slow
def test_a_maximum_and_the_sum_below_it_are_softmaxs_of_rows_of_any_three_numbers():
    run("interpret", "every online")


@pytest.mark.slow
def test_every_kernel_compiles_in_every_way_for_three_architectures():
    run("every-80-90-100", "all")


@pytest.mark.slow
def test_every_scalar_operator_compiles_for_three_architectures():
    run(
        "scalars-80-100",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "int8",
        "int32",
        "int64",
        "uint8",
    )
