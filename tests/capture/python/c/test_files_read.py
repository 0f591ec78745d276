"""Files that a function opens, reads and closes: no graph breaks, and each call reads what lies there
then. What else is done with files is done by CPython, once and in order."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import anyshape
from anyshape.capture.heap import file_contents

X = torch.arange(3.0)
CONTENTS = (
    b"one\ntwo\r\nthree,4\n",
    b"",
    b"x\xc3\xa9\nlast",
    b"one\ntwo\r\nthree,4\n",
    b"\xff\xfe\n",
)


def read_whole(path):
    with open(path) as file:
        return file.read()


def lines_stripped(path):
    found = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            found.append(line.strip())
    return found


def bytes_by_steps(path):
    with open(path, "rb") as file:
        return file.readline(), file.tell(), file.read(2), file.seek(0), file.readlines()


def closed_in_finally(path):
    file = open(path)
    try:
        return file.readlines(), file
    finally:
        file.close()


def what_it_says_of_itself(path):
    with open(path) as file:
        said = file.name, file.mode, file.encoding, file.errors, file.newlines, repr(file)
        can = file.readable(), file.writable(), file.seekable(), file.isatty(), file.closed
    return said, can, file.closed, file.name, repr(file)


def written_to(path):
    said = []
    with open(path) as file:
        try:
            file.write("x")
        except OSError as error:
            said += [type(error), str(error)]
    try:
        file.read()
    except ValueError as error:
        said += [type(error), str(error)]
    return said


def two_at_once(path):
    with open(path) as file, open(path) as other:
        return list(zip(file, other, strict=True)), file is other


def replaced_errors(path):
    with open(path, "rb") as file:
        text = file.read().decode("ascii", "replace")
    with open(path, errors="replace", encoding="ascii") as file:
        return text, file.read()


def refused_bytes(path):
    with open(path, encoding="ascii") as file:
        return file.read()


def raised_inside(path):
    with open(path) as file:
        next(file, None)
        raise ValueError(file.readline())


def of_a_generator(path):
    def lines():
        with open(path) as file:
            yield from file

    return list(lines())


def of_a_generator_that_is_closed(path):
    def lines():
        with open(path) as file:
            yield from file

    made = lines()
    first = next(made, 0)
    made.close()
    return first


def back_and_forth(path):
    with open(path) as file:
        start, at = file.read(2), file.tell()
        file.seek(0)
        text = file.read()
        file.seek(at)
        return start, text, file.read()


def ends_of_lines(path):
    with open(path, newline="") as file:
        found = file.read(), file.newlines
    with open(path) as other:
        return found, other.read(), other.newlines, file, other


def attribute_of_its_own(path):
    with open(path) as file:
        file.own = 3
        text = file.read()
    return text, file, file.own


def told_where_it_is(path):
    with open(path) as file:
        line = next(iter(file), "")
        try:
            return line, file.tell()
        except OSError as error:
            return line, str(error)


def some_of_the_lines(path):
    with open(path) as file:
        return file.readlines(3), file.readline(2), file.read(1), [*enumerate(file)]


def a_branch_on_it(path):
    with open(path, "rb") as file:
        return "odd" if sum(map(len, file)) % 2 else "even"


WHOLE: dict[str, Callable[[Any], Any]] = {
    each.__name__: each
    for each in (
        *(read_whole, lines_stripped, bytes_by_steps, closed_in_finally, what_it_says_of_itself),
        *(written_to, two_at_once, replaced_errors, refused_bytes, raised_inside, of_a_generator),
        *(of_a_generator_that_is_closed, back_and_forth, ends_of_lines, attribute_of_its_own),
        *(told_where_it_is, some_of_the_lines, a_branch_on_it),
    )
}


def left_open(path):
    return open(path).read()


def handed_out_open(path):
    file = open(path)
    return file.readline(), file


def not_there(path):
    try:
        with open(path + ".none") as file:
            return file.read()
    except FileNotFoundError as error:
        return error.filename == path + ".none", str(error).partition(":")[0]


def bytes_behind_it(path):
    with open(path) as file:
        return file.buffer.read()


def number_of_it(path):
    with open(path) as file:
        return file.fileno() > 2


def written_and_read(path):
    with open(path, "a") as file:
        file.write("more")
    text = left_open_again(path)
    with open(path, "w") as file:
        file.write("less")
    return text, left_open_again(path)


def left_open_again(path):
    with open(path, errors="replace") as file:
        return file.read()


def without_a_buffer(path):
    with open(path, "rb", 0) as file:
        return file.read()


def by_a_path(path):
    return Path(path).read_bytes()


def broken_in_the_middle(path):
    with open(path, "rb") as file:
        first = file.readline()
        os.getpid()
        return first, file.read()


def broken_behind_it(path):
    with open(path, "rb") as file:
        first = file.readline()
    os.getpid()
    return first, file, file.closed


def told_that_it_is_open(path):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        left_open(path)
    return [each.category for each in told]


def where_the_process_is(path):
    os.chdir(os.path.dirname(path))
    with open(os.path.basename(path), "rb") as file:
        return file.read()


IN_PIECES: dict[str, Callable[[Any], Any]] = {
    each.__name__: each
    for each in (
        *(left_open, handed_out_open, not_there, bytes_behind_it, number_of_it, written_and_read),
        *(without_a_buffer, by_a_path, broken_in_the_middle, told_that_it_is_open),
        *(broken_behind_it, where_the_process_is),
    )
}


@pytest.fixture(autouse=True)
def _directory() -> Iterator[None]:
    before = os.getcwd()
    yield
    os.chdir(before)


def shown(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [shown(item) for item in value]
    return (repr(value), value.closed, vars(value)) if hasattr(value, "readline") else value


def outcome(fn: Callable[..., Any], path: Path, data: bytes) -> Any:
    path.write_bytes(data)
    try:
        y, found = fn(X, str(path))
        return y.tolist(), shown(found), path.read_bytes()
    except (ValueError, OSError) as error:
        return type(error), str(error)


def around(read: Callable[[Any], Any]) -> Callable[..., Any]:
    def program(x: torch.Tensor, path: Any) -> Any:
        y = x + 1
        found = read(path)
        return y * 2, found

    return program


@pytest.mark.parametrize("name", WHOLE)
def test_each_call_reads_what_lies_there_in_one_graph(name: str, tmp_path: Path) -> None:
    program = around(WHOLE[name])
    fast = anyshape.compile(program, fullgraph=True)
    for data in CONTENTS:
        assert outcome(fast, tmp_path / "a", data) == outcome(program, tmp_path / "a", data)


@pytest.mark.parametrize("options", [{}, {"break_every": 1}, {"break_every": 3}])
@pytest.mark.parametrize("name", [*WHOLE, *IN_PIECES])
def test_each_call_reads_what_lies_there(name: str, options: Any, tmp_path: Path) -> None:
    program = around({**WHOLE, **IN_PIECES}[name])
    fast = anyshape.compile(program, options=options)
    for data in CONTENTS:
        assert outcome(fast, tmp_path / "a", data) == outcome(program, tmp_path / "a", data)


def test_what_lies_there_in_each_call_anew_is_read_by_cpython_after_some(tmp_path: Path) -> None:
    program = around(read_whole)
    fast = anyshape.compile(program)
    for index in range(12):
        data = str(index).encode()
        assert outcome(fast, tmp_path / "a", data) == outcome(program, tmp_path / "a", data)
    made = fast._lazy.machinery
    assert len(made.capturer.works) < 12


def test_a_file_that_is_gone_or_another_kind_is_an_error_of_cpython(tmp_path: Path) -> None:
    program = around(read_whole)
    fast = anyshape.compile(program)
    path = tmp_path / "a"
    assert outcome(fast, path, b"text") == outcome(program, path, b"text")
    path.unlink()
    with pytest.raises(FileNotFoundError):
        fast(X, str(path))
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        fast(X, str(path))
    path.rmdir()
    assert outcome(fast, path, b"text") == outcome(program, path, b"text")


def test_what_the_segment_tells_at_its_end_may_lie_in_the_file(tmp_path: Path) -> None:
    path, logger = tmp_path / "log", logging.getLogger("anyshape.files")
    handler = logging.FileHandler(path)
    logger.addHandler(handler)

    def program(x: torch.Tensor) -> Any:
        logger.error("a line")
        with open(path) as file:
            return x + 1, file.read()

    fast = anyshape.compile(program)
    try:
        for times in (1, 2, 3):
            assert fast(X)[1] == "a line\n" * times
    finally:
        logger.removeHandler(handler)
        handler.close()


def test_a_long_file_and_a_pipe_are_read_by_cpython_alone(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"a" * (file_contents.LONGEST + 1))
    assert file_contents.digest_of_file(str(path)) is None
    os.mkfifo(tmp_path / "pipe")
    assert file_contents.digest_of_file(str(tmp_path / "pipe")) is None
    assert file_contents.digest_of_file("a\0") is None
    with pytest.raises(anyshape.errors.GraphBreakError):
        anyshape.compile(around(read_whole), fullgraph=True)(X, str(path))


def test_a_file_is_read_behind_what_the_graph_writes_to_it(tmp_path):
    path = str(tmp_path / "shared")
    Path(path).write_bytes(bytes(8))
    memory = torch.from_file(path, shared=True, size=8, dtype=torch.uint8)

    def program(x):
        memory.add_(1)
        with open(path, "rb") as file:
            return x + 1, file.read()

    fast = anyshape.compile(program)
    assert [fast(X)[1] for _ in range(3)] == [bytes([n] * 8) for n in (1, 2, 3)]


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="such files are Linux's")
def test_files_that_the_system_makes_at_each_reading_are_left_to_cpython():
    def program(x):
        with open("/proc/self/stat") as file:
            return x + 1, file.read().split()[0]

    assert anyshape.compile(program)(X)[1] == str(os.getpid())
