"""What `_json` encodes and decodes is captured: the standard library's Python is interpreted in its
place, and where C would differ the call is left to it."""

from __future__ import annotations

import enum
import json
import traceback
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import anyshape


class Kind(enum.IntEnum):
    A = 1


class Record(NamedTuple):
    a: int
    b: str


class Encoder(json.JSONEncoder):
    def default(self, o: Any) -> Any:
        return sorted(o) if isinstance(o, set) else super().default(o)


class Listed(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter(["other"])


def encoded(x: Any) -> Any:
    values = {"n": 3, "l": [1, 2.5, None, True, (1,)], "s": "\u00e9\n", "f": float("inf"), 1: -0.0}
    kept = OrderedDict(b=Kind.A, a=Record(1, "q")), defaultdict(list, z=[{}])
    return x + 1, json.dumps(values), json.dumps(kept), json.dumps("q"), json.dumps({})


def encoded_otherwise(x: Any) -> Any:
    shown = json.dumps({"b": {3, 1}, "a": [{2}]}, cls=Encoder, sort_keys=True)
    return x + 1, shown, json.dumps([1, {"k": "\u00e9"}], indent=1, ensure_ascii=False)


def decoded(x: Any) -> Any:
    found = json.loads('{"a": [1, 2, {"b": null}], "c": 1.5e3, "d": "\\u00e9", "e": [[[[]]]]}')
    found["e"][0][0].append(x.shape[0])
    found["a"].append(4)
    return x + found["a"][1], found, json.loads("3"), json.loads('"q"')


def decoded_by_hooks(x: Any) -> Any:
    pairs = json.loads('{"a": {"b": 1}}', object_hook=lambda found: [*found.items()])
    return x + 1, pairs, json.loads("[1.5]", parse_float=str)


def of_sizes(x: Any) -> Any:
    text = json.dumps({"rows": x.shape[0], "twice": [x.shape[0] * 2]})
    return x * 2, text, json.loads(text)["rows"]


CAPTURED = [encoded, encoded_otherwise, decoded, decoded_by_hooks, of_sizes]


def refused(x: Any) -> Any:
    said: list[Any] = []
    ring: list[Any] = []
    ring.append(ring)
    for value in ({1, 2}, float("nan"), {(1, 2): 3}, ring, [Listed([1, 2])]):
        try:
            said.append(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError) as error:
            said.append((type(error), str(error)))
    for text in ("", "{", "[1,]", '{"a" 1}', "nul", '"\n"'):
        try:
            said.append(json.loads(text))
        except json.JSONDecodeError as error:
            said.append((str(error), error.pos))
    return x + 1, said


def check(program: Callable[..., Any], *, fullgraph: bool) -> None:
    fast = anyshape.compile(program, fullgraph=fullgraph)
    for count in (2, 3, 2, 4):
        x = torch.ones(count)
        found, wanted = fast(x), program(x)
        assert torch.equal(found[0], wanted[0])
        assert found[1:] == wanted[1:]
    assert fast.stats().internal_errors == 0


@pytest.mark.parametrize("program", CAPTURED, ids=lambda program: program.__name__)
def test_in_one_graph(program: Callable[..., Any]) -> None:
    check(program, fullgraph=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", [*CAPTURED, refused], ids=lambda program: program.__name__)
def test_as_natively(program: Callable[..., Any]) -> None:
    check(program, fullgraph=False)


def test_each_call_has_containers_of_its_own() -> None:
    fast = anyshape.compile(decoded, fullgraph=True)
    first, second = fast(torch.ones(2))[1], fast(torch.ones(2))[1]
    assert first == second
    assert first["e"][0][0] is not second["e"][0][0]


def _told(x: torch.Tensor, module: Any, texts: list[str], errors: list[Any]) -> Any:
    y, said = x + 1, []
    for text in texts:
        try:
            said.append(repr(module.loads(text)))
        except ValueError as error:
            said.append((str(error), vars(error), type(error), repr(error.__context__)))
            errors.append(error)
    said.append(module.dumps({"a": [1, (2, 3)], "b": None}, indent=1))
    return y * 2, said


def test_what_c_refuses_is_refused_in_its_words_by_a_copy_of_the_module_too() -> None:
    helper = pytest.importorskip("test.support.import_helper")
    copied = helper.import_fresh_module("json", fresh=["_json"])
    copied.decoder.JSONDecodeError = json.JSONDecodeError  # which C finds in `sys.modules`
    texts = ['{"a": [1, 2.5, null, NaN, {"b": "c"}]}', "[1,", '{"a" 1}', "", '"\\x"', "[1]x"]
    for module in (json, copied):
        fast = anyshape.compile(_told, fullgraph=True)
        expected: list[Any] = []
        found: tuple[list[Any], ...] = ([], [])
        said = _told(torch.ones(2), module, texts, expected)[1]
        for errors in found:
            assert fast(torch.ones(2), module, texts, errors)[1] == said
            assert [*map(str, errors)] == [*map(str, expected)]
            assert [*map(_lines, errors)] == [*map(_lines, expected)]
        assert found[0][0] is not found[1][0]
        assert fast.stats().specializations == 1


def _lines(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:]
