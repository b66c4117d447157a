"""Dataclasses that are completed later: nobody may notice."""

import abc
import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import threading
import typing

import pytest

from f2tools.lazy import dataclass, replace


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


def test_the_first_objects_are_made_without_the_library_and_are_as_the_others() -> None:
    code = f"import sys; sys.path[:] = {sys.path!r}\nfrom f2tools.lazy import dataclass\n"
    code += "@dataclass(frozen=True)\nclass A:\n    a: int\n    b: str = 'b'\n"
    code += "made = [A(i, b='c') if i % 2 else A(i) for i in range(3)]\nassert 'dataclasses' not in sys.modules\n"
    code += "made += [A(i, b='c') if i % 2 else A(i) for i in range(3, 400)]\nassert 'dataclasses' in sys.modules\n"
    code += "print(len(set(made)), made[0], made[399], made[1] == A(1, 'c') != A(1), *map(vars, made[::399]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    said = "400 A(a=0, b='b') A(a=399, b='c') True {'a': 0, 'b': 'b'} {'a': 399, 'b': 'c'}\n"
    assert (done.stdout, done.stderr) == (said, "")


@pytest.mark.parametrize("ask", [repr, hash, lambda made: made == 1, lambda made: type(made).__match_args__])
def test_the_first_object_answers_what_any_other_does(ask: typing.Callable[[object], object]) -> None:
    for base in classes()[:2]:
        plain = dataclasses.make_dataclass("Base", [(item.name, int) for item in dataclasses.fields(base)], frozen=True)
        told = [str(ask(kind(*range(len(dataclasses.fields(base)))))) for kind in (base, plain)]
        assert told[0].split(".")[-1] == told[1].replace("Base", base.__name__)


def test_an_object_that_can_be_changed_has_no_hash_from_the_first_on() -> None:
    @dataclass
    class Changing:
        a: int

    made = Changing(1)
    made.a = 2
    assert vars(made) == {"a": 2}
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)


def test_a_default_that_can_be_changed_is_refused() -> None:
    @dataclass
    class Shared:
        a: list[int] = []  # noqa: RUF012 - that is the point

    with pytest.raises(ValueError, match="mutable default"):
        Shared()


@pytest.mark.parametrize("whole", [False, True])
def test_some_fields_of_a_copy_are_others(whole: bool) -> None:
    for kind in classes()[:2]:
        made = kind(1, [2])
        vars(made)["computed"] = 5
        if whole:
            assert dataclasses.fields(kind)
        other = replace(made, a=3)
        assert other == kind(3, [2])
        assert "computed" not in vars(other)
        with pytest.raises(TypeError, match="nonsense"):
            replace(made, nonsense=3)


def test_slots_are_refused() -> None:
    with pytest.raises(TypeError, match="slots"):

        @dataclass(slots=True)
        class Slotted:
            a: int


def test_a_class_above_with_an_initializer_of_its_own_runs_it_once() -> None:
    @dataclass
    class Base:
        a: int

    class Above(Base):
        def __init__(self, a: int) -> None:
            super().__init__(a + 1)

    assert [Above(1).a, Above(1).a, Base(1).a] == [2, 2, 1]


def test_an_initializer_of_its_own_stays() -> None:
    @dataclass
    class Own:
        a: int

        def __init__(self) -> None:
            self.a = 5

        def __setstate__(self, state: dict[str, int]) -> None:
            self.a = state["a"] + 1

    assert copy.copy(Own()).a == 6
    assert Own() == Own()


def test_two_threads_make_the_first_object_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second comes while the first writes the methods, which is when it used to find none."""
    real = dataclasses.dataclass
    seen: list[object] = []
    others: list[threading.Thread] = []

    def slow(**settings: object) -> object:
        def decorate(cls: type) -> type:
            others.append(threading.Thread(target=lambda: seen.append(further(1, [2]))))
            others[-1].start()
            others[-1].join(0.1)
            return real(**settings)(cls)  # type: ignore[call-overload]

        return decorate

    monkeypatch.setattr(dataclasses, "dataclass", slow)
    further = classes()[1]
    made = further(1, [2])
    assert not others
    assert len(dataclasses.fields(further)) == 3
    for other in others:
        other.join()
    assert others
    assert seen == [made] * len(others)


@pytest.mark.parametrize("of_the_class", ["typing.ClassVar[int]", "only without an annotation"])
def test_what_a_dataclass_has_it_has_too(of_the_class: str) -> None:
    def body() -> type:
        class Same:
            a: int
            b: list[int] = dataclasses.field(default_factory=list)
            c: int = dataclasses.field(default=3, compare=False)
            d = 4
            if of_the_class.startswith("typing"):
                __annotations__["d"] = of_the_class

            def __post_init__(self) -> None:
                vars(self)["early"] = self.a

        return Same

    for settings in ({}, {"frozen": True}, {"order": True}, {"eq": False}, {"kw_only": True}, {"unsafe_hash": True}):
        plain, later = dataclasses.dataclass(**settings)(body()), dataclass(**settings)(body())
        assert later(a=1).early == 1
        assert (later.c, later.d, hasattr(later, "b")) == (3, 4, False)
        assert vars(later(a=5)) == vars(plain(a=5))
        assert later.__match_args__ == plain.__match_args__
        assert vars(plain).keys() == vars(later).keys()
        assert plain.__doc__ == later.__doc__
        assert str(inspect.signature(plain)) == str(inspect.signature(later))
        assert repr(plain.__dataclass_params__) == repr(later.__dataclass_params__)
        assert (later.c, later.d, hasattr(later, "b")) == (3, 4, False)
        assert [item.name for item in dataclasses.fields(later)] == ["a", "b", "c"]


def test_an_abstract_and_generic_class_stays_what_it_is() -> None:
    kind = typing.TypeVar("kind")

    @dataclass(frozen=True)
    class Base(abc.ABC, typing.Generic[kind]):
        a: kind

        @abc.abstractmethod
        def told(self) -> str: ...

    @dataclass(frozen=True)
    class Told(Base[int]):
        def told(self) -> str:
            return f"{super().__repr__()} {__class__ is Told}"

    Base.register(str)
    assert Told(1).told().endswith("Told(a=1) True")
    assert [issubclass(kind, Base) for kind in (Told, str, bytes)] == [True, True, False]
    with pytest.raises(TypeError, match="abstract"):
        Base(1)


def test_frozen_ones_neither_set_nor_delete() -> None:
    base, further, plain = (cls(1) for cls in classes())
    for made in (base, further, plain):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
            made.a = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'a'"):
            del made.a
    with pytest.raises(dataclasses.FrozenInstanceError):
        further.other = 1
    plain.other = 1
    assert plain.other == 1
    del plain.other
