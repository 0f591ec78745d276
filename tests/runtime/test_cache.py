"""The cache costs a rebuild at worst: one test for each fault that a disk or a neighbour can cause."""

import ctypes
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from anyshape.errors import AnyshapeError
from anyshape.ir.code import NativeFunction
from anyshape.options import Options
from anyshape.runtime.cache import DiskCache, digest
from anyshape.targets.cpu.build import (
    FLAGS,
    LINKED,
    OBJECT,
    SANITIZED,
    WIDE,
    WITHOUT,
    Builder,
    Toolchain,
    compile_c,
    cpu_identity,
)
from anyshape.targets.cpu.prelude import TYPES

SOURCE = "void bump(float *x, long n) { for (long i = 0; i < n; i++) x[i] += 1; }"
BUMP = {"bump": NativeFunction(SOURCE, ("pointer", "int64"))}


def new_builder(directory: Path) -> Builder:
    return Builder.create(Options(cache_dir=str(directory)))


def bumps(builder: Builder) -> bool:
    numbers = (ctypes.c_float * 3)(1, 2, 3)
    function = builder.functions(BUMP)["bump"]
    function(ctypes.addressof(numbers), 3)
    return list(numbers) == [2, 3, 4]


def stored_objects(directory: Path) -> list[Path]:
    return list(directory.rglob(OBJECT))


def test_a_second_builder_loads_what_the_first_compiled(tmp_path):
    first, second = new_builder(tmp_path), new_builder(tmp_path)
    assert bumps(first) and bumps(second)
    assert (first.compiled, second.compiled) == (1, 0)


def test_blobs_come_back_as_they_were_stored(tmp_path):
    cache = DiskCache.open(str(tmp_path))
    cache.store("ab12", {"a": b"\x00\xff", "b": b""})
    assert DiskCache.open(str(tmp_path)).load("ab12") == {"a": b"\x00\xff", "b": b""}
    assert cache.load("ab13") is None


def test_the_digest_tells_where_parts_end():
    assert digest("ab", "c") != digest("a", "bc")


@pytest.mark.parametrize("length", [0, 1, 100])
def test_a_truncated_object_is_rebuilt(tmp_path, length):
    assert bumps(new_builder(tmp_path))
    (path,) = stored_objects(tmp_path)
    path.write_bytes(path.read_bytes()[:length])
    again = new_builder(tmp_path)
    assert bumps(again) and again.compiled == 1
    third = new_builder(tmp_path)
    assert bumps(third) and third.compiled == 0, "the entry was not repaired"


def test_an_object_with_the_wrong_digest_is_not_loaded(tmp_path):
    assert bumps(new_builder(tmp_path))
    (path,) = stored_objects(tmp_path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    again = new_builder(tmp_path)
    assert bumps(again) and again.compiled == 1


def test_damaged_metadata_is_a_miss(tmp_path):
    cache = DiskCache.open(str(tmp_path))
    for text in ("", "{", "[]", '{"key": "ab12"}', '{"key": "ab12", "digests": {"a": 3}}'):
        cache.store("ab12", {"a": b"x"})
        next(tmp_path.rglob("meta.json")).write_text(text)
        assert cache.load("ab12") is None


def entry_of(directory: Path, key: str) -> Path:
    (entry,) = directory.rglob(key)
    return entry


@pytest.mark.parametrize("name", ["meta.json", "a"])
def test_no_change_of_a_byte_gives_other_blobs_or_stays(tmp_path, name):
    """Each byte of a small entry, changed in three ways: what was stored, or a miss that a new entry
    can replace."""
    cache, blobs = DiskCache.open(str(tmp_path)), {"a": b"0123456789"}
    cache.store("ab12", blobs)
    whole = (entry_of(tmp_path, "ab12") / name).read_bytes()
    for position in range(len(whole)):
        for flip in (0x01, 0x20, 0xFF):
            changed = whole[:position] + bytes([whole[position] ^ flip]) + whole[position + 1 :]
            (entry_of(tmp_path, "ab12") / name).write_bytes(changed)
            assert cache.load("ab12") in (None, blobs)
            cache.store("ab12", blobs)
            assert cache.load("ab12") == blobs


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = {
    "no object": lambda entry: (entry / "a").unlink(),
    "no meta": lambda entry: (entry / "meta.json").unlink(),
    "a pipe for an object": lambda entry: replace_by_pipe(entry / "a"),
    "a pipe for meta": lambda entry: replace_by_pipe(entry / "meta.json"),
    "a directory for an object": lambda entry: replace_by_directory(entry / "a"),
    "deeper than json goes": lambda entry: (entry / "meta.json").write_text("[" * 100_000),
    "a name that is none": lambda entry: (entry / "meta.json").write_text('{"key": "ab12", "digests": {"\\u0000": ""}}'),
    "a file for the entry": lambda entry: (shutil.rmtree(entry), entry.write_text("")),
    "an empty entry": lambda entry: (shutil.rmtree(entry), entry.mkdir()),
    "not to be read": lambda entry: (entry / "a").chmod(0),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_replaced_by_the_next_store(tmp_path, damage):
    cache, blobs = DiskCache.open(str(tmp_path)), {"a": b"0123456789"}
    cache.store("ab12", blobs)
    DAMAGES[damage](entry_of(tmp_path, "ab12"))
    assert cache.load("ab12") in (None, blobs)  # root reads what may not be read
    cache.store("ab12", blobs)
    assert cache.load("ab12") == blobs


def test_a_cache_that_is_removed_meanwhile_is_no_error(tmp_path):
    builder = new_builder(tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache")
    assert bumps(builder)
    assert bumps(new_builder(tmp_path / "cache"))


def test_what_a_killed_process_left_is_swept_and_what_is_being_written_is_not(tmp_path):
    cache = DiskCache.open(str(tmp_path))
    left, written = cache.root / ".ab12.1.aa", cache.root / ".ab13.2.bb"
    left.mkdir()
    written.mkdir()
    os.utime(left, (0, 0))
    cache.store("ab12", {"a": b"0"})
    assert (left.exists(), written.exists()) == (False, True)


def test_above_the_limit_the_entries_used_longest_ago_go(tmp_path, monkeypatch):
    monkeypatch.setattr("anyshape.runtime.cache.LIMIT_BYTES", 3_000)
    cache, keys = DiskCache.open(str(tmp_path)), ["ab1", "ab2", "ab3", "ab4"]
    for age, key in enumerate(keys):
        cache.store(key, {"a": bytes(1_000)})
        os.utime(entry_of(tmp_path, key), (1_000_000 + age, 1_000_000 + age))
    assert cache.load("ab1") is not None  # used, so it is the newest now
    (cache.root / ".swept").unlink()
    cache.sweep()
    assert [cache.load(key) is not None for key in keys] == [True, False, False, True]


@pytest.mark.parametrize("skew", [-10 * 365 * 86_400, 10 * 365 * 86_400])
def test_a_clock_that_jumps_costs_a_rebuild_at_most(tmp_path, skew, monkeypatch):
    assert bumps(new_builder(tmp_path))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + skew)
    cache = DiskCache.open(str(tmp_path))
    cache.store("ab12", {"a": b"0"})
    assert cache.load("ab12") == {"a": b"0"}
    assert bumps(new_builder(tmp_path))


def test_a_symbolic_link_in_an_entry_is_not_followed(tmp_path):
    cache = DiskCache.open(str(tmp_path / "cache"))
    cache.store("ab12", {"a": b"x"})
    entry = next((tmp_path / "cache").rglob("meta.json")).parent
    (tmp_path / "elsewhere").write_bytes(b"x")
    (entry / "a").unlink()
    (entry / "a").symlink_to(tmp_path / "elsewhere")
    assert cache.load("ab12") is None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_directory_that_others_can_write_is_not_used(tmp_path, mode):
    directory = tmp_path / "cache"
    directory.mkdir()
    directory.chmod(mode)
    builder = new_builder(directory)
    assert "written by others" in builder.cache.problem
    assert bumps(builder) and not stored_objects(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_not_used(tmp_path):
    directory = tmp_path / "cache"
    directory.mkdir(mode=0o700)
    os.chown(directory, 12345, 12345)
    builder = new_builder(directory)
    assert "another user" in builder.cache.problem
    assert bumps(builder)


def test_no_directory_at_all_is_no_error():
    builder = Builder.create(Options(cache_dir=""))
    assert builder.cache.root is None and bumps(builder)


def test_a_directory_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    builder = new_builder(tmp_path / "file" / "cache")
    assert builder.cache.problem and bumps(builder)


MOUNTED = """
    import ctypes, sys
    from pathlib import Path
    sys.path.insert(0, {root!r})
    from tests.runtime.test_cache import bumps, new_builder
    assert bumps(new_builder(Path({directory!r})))
    print("right")
"""


def run_on_mount(options: str, directory: Path, fill: str = "true") -> subprocess.CompletedProcess:
    """Runs ``bumps`` with a file system mounted at ``directory``, in a private mount namespace."""
    root = str(Path(__file__).parents[2])
    script = textwrap.dedent(MOUNTED).format(root=root, directory=str(directory))
    command = f"mount -t tmpfs {options} none {directory} && {fill} && exec {sys.executable} -c '{script}'"
    shell = command.replace("'" + script + "'", '"$SCRIPT"')
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", shell],
        env={**os.environ, "SCRIPT": script},
        capture_output=True,
        text=True,
        check=False,
    )


def mounts_are_refused() -> bool:
    if shutil.which("unshare") is None:
        return True
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode != 0


needs_mounts = pytest.mark.skipif(mounts_are_refused(), reason="mounts are refused here")


@needs_mounts
def test_a_read_only_disk_is_no_error(tmp_path):
    done = run_on_mount("-o ro", tmp_path)
    assert done.stdout == "right\n", done.stderr


@needs_mounts
@pytest.mark.parametrize("size", ["4k", "16k", "64k"])
def test_a_full_disk_is_no_error(tmp_path, size):
    fill = f"head -c 100000000 /dev/zero > {tmp_path}/filler 2>/dev/null; true"
    done = run_on_mount(f"-o size={size},mode=700", tmp_path, fill)
    assert done.stdout == "right\n", done.stderr


@needs_mounts
def test_the_compiler_writes_where_there_is_room(tmp_path, monkeypatch):
    """A full directory for temporary files is passed over."""
    full = tmp_path / "full"
    full.mkdir()
    script = f"import tempfile; tempfile.tempdir = {str(full)!r}\n" + textwrap.dedent(MOUNTED)
    monkeypatch.setitem(globals(), "MOUNTED", script)
    monkeypatch.setenv("ANYSHAPE_CACHE_DIR", "")
    done = run_on_mount("-o size=4k,mode=700", full, f"touch {full}/{{a,b,c}}; true")
    assert done.stdout == "right\n", done.stderr


FORKED = """
    import os, sys
    from pathlib import Path
    sys.path.insert(0, {root!r})
    from tests.runtime.test_cache import bumps, new_builder
    forks = []
    for _ in range(4):  # which have imported all of it
        forks.append(os.fork())
        if not forks[-1]:
            said = b"right" if bumps(new_builder(Path({directory!r}))) else b"wrong"
            os.write(1, said + bytes([10]))
            os._exit(0)
    for fork in forks:
        os.waitpid(fork, 0)
"""


def test_four_processes_that_compile_the_same_thing_all_succeed(tmp_path):
    root = str(Path(__file__).parents[2])
    script = textwrap.dedent(FORKED).format(root=root, directory=str(tmp_path))
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=100)
    assert done.stdout == "right\n" * 4
    assert len(stored_objects(tmp_path)) == 1
    assert not [p for p in tmp_path.rglob(".*") if p.is_dir()], "a temporary entry was left"


def test_a_killed_compiler_is_an_error_that_says_so_and_caches_nothing(tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\nkill -9 $$\n")
    compiler.chmod(0o755)
    builder = Builder.create(Options(cache_dir=str(tmp_path / "cache"), cc=str(compiler)))
    with pytest.raises(AnyshapeError, match="E602(.|\n)*ended by SIGKILL"):
        bumps(builder)
    assert not stored_objects(tmp_path)
    assert bumps(new_builder(tmp_path / "cache"))


def test_the_compilers_own_words_are_in_the_error():
    with pytest.raises(AnyshapeError, match="nonsense"):
        compile_c(Toolchain.find("cc"), "int x = nonsense;")


def test_libraries_with_the_same_function_name_stay_apart(tmp_path):
    first = Builder.create(Options(cache_dir=str(tmp_path)))
    second = Builder.create(Options(cache_dir=str(tmp_path)))
    numbers = (ctypes.c_float * 1)(1)
    first.functions(BUMP)["bump"](ctypes.addressof(numbers), 1)
    other = NativeFunction(SOURCE.replace("+= 1", "+= 10"), ("pointer", "int64"))
    second.functions({"bump": other})["bump"](ctypes.addressof(numbers), 1)
    assert list(numbers) == [12]


@pytest.mark.parametrize(
    ("name", "told"), [("x86_64-linux-gnu-gcc-12", True), ("clang-17", False), ("ccache", False)]
)
def test_only_gcc_is_told_which_of_its_passes_to_leave_out(tmp_path, name, told):
    compiler, link = tmp_path / name, tmp_path / "cc"
    compiler.touch(mode=0o700)
    link.symlink_to(compiler)
    left_out = {f"-fno-{each}" for each in WITHOUT}
    for flags in (FLAGS, SANITIZED):
        toolchain = Toolchain.find(str(link), flags)
        assert toolchain.flags[: len(flags)] == flags
        assert (left_out < {*toolchain.flags}) == (told and flags is FLAGS)
        assert ({*LINKED} < {*toolchain.flags}) == (told and flags is FLAGS)
        assert ("-lgomp" in toolchain.libraries()) == (told and flags is FLAGS)
        is_wide = told and flags is FLAGS and "avx512f" in cpu_identity().split()
        assert ({*WIDE} < {*toolchain.flags}) == is_wide


def test_vectors_are_as_wide_by_the_flag_as_by_the_pragma():
    toolchain = Toolchain.find("gcc")
    if toolchain is None or not {*WIDE} < {*toolchain.flags}:
        pytest.skip("no gcc that is told, or no vectors of 512 bits")
    by_pragma = tuple(flag for flag in toolchain.flags if flag not in WIDE)
    texts = []
    for flags in (toolchain.flags, by_pragma):
        command = (toolchain.path, *flags, "-S", "-x", "c", "-", "-o", "-")
        source = f"{TYPES}\n{SOURCE}".encode()
        texts.append(subprocess.run(command, input=source, capture_output=True, check=True).stdout)
    assert texts[0] == texts[1]
    assert b"zmm" in texts[0]
