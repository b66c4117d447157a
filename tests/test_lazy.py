"""Dataclasses that are completed later: nobody may notice."""

import copy
import dataclasses
import pickle
import subprocess
import sys

import pytest

from f2tools.lazy import dataclass


def classes() -> tuple[type, type, type]:
    """(a class, a dataclass on it, a plain class on that), none of them with an object yet."""

    @dataclass(frozen=True)
    class Base:
        a: int
        b: list[int] = dataclasses.field(default_factory=list)

    @dataclass(frozen=True)
    class Further(Base):
        c: str = "c"

    class Plain(Further):
        pass

    return Base, Further, Plain


@dataclass
class Kept:
    a: int
    b: str = "b"


@pytest.mark.parametrize("first", [0, 1, 2])
def test_whichever_of_a_family_is_made_first_all_are_dataclasses(first: int) -> None:
    family = classes()
    made = family[first](1)
    assert made.a == 1
    assert made.b == []
    assert made == family[first](1) != family[first](2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.a = 2
    base, further, plain = (cls(1, [2]) for cls in family)
    assert (base.b, further.c, plain.c) == ([2], "c", "c")
    assert repr(plain).endswith("Plain(a=1, b=[2], c='c')")
    assert dataclasses.replace(further, a=5).a == 5
    assert further != plain
    assert hash(family[1](1, ())) == hash(family[1](1, ()))  # type: ignore[arg-type]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_fields_are_there_before_any_object_is(first: int) -> None:
    names = [item.name for item in dataclasses.fields(classes()[first])]
    assert names == ["a", "b", "c"][: 2 + (first > 0)]
    assert dataclasses.is_dataclass(classes()[first])


def test_a_wrong_argument_is_refused_each_time() -> None:
    base = classes()[0]
    for _ in range(2):
        with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
            base(1, nonsense=2)
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
            base()


def test_a_match_takes_it_apart() -> None:
    match classes()[1](1, [2], "three"):
        case object(a=1) as made:
            assert made.c == "three"
    further = classes()[1]
    match further(1, [2], "three"):
        case further(a, b, c):
            assert (a, b, c) == (1, [2], "three")


def test_what_another_process_made_is_whole_where_none_was_made_before() -> None:
    assert copy.deepcopy(Kept(1)) == Kept(1)
    code = f"import sys, pickle; sys.path[:] = {sys.path!r}; made = pickle.loads({pickle.dumps(Kept(7))!r}); "
    code += "print(made, made == type(made)(7), made != type(made)(8))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "Kept(a=7, b='b') True True\n", done.stderr


def test_slots_are_refused() -> None:
    with pytest.raises(TypeError, match="slots"):

        @dataclass(slots=True)
        class Slotted:
            a: int
