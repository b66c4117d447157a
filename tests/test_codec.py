"""The codec: what a declaration yields, and what it refuses."""

from typing import Annotated, Any

import numpy as np
import pytest

from f2tools.codec import Array, Bytes, Int, Ints, Layout, Rows, field, u8, u16, u32, u64


class Inner(Layout):
    """struct inner: two numbers."""

    a: u8 = field("one byte")
    b: u32 = field("four bytes, right after it")


class Outer(Layout):
    """struct outer: everything that a structure may hold."""

    magic: u16 = field("a number")
    one: Inner = field("a structure")
    many: Annotated[Rows, Array(Inner, 3)] = field("structures")
    numbers: Annotated[Ints, Array(u16, lambda block_size: block_size // 2048)] = field("numbers by block size")
    raw: Annotated[bytes, Bytes(lambda block_size: block_size % 5)] = field("bytes by block size")
    last: u64 = field("a number")


RAW = bytes(range(Outer.size))


def test_a_structure_is_packed_whatever_its_alignment() -> None:
    assert [(f.name, f.offset, f.size) for f in Outer.fields] == [
        ("magic", 0, 2), ("one", 2, 5), ("many", 7, 15), ("numbers", 22, 4), ("raw", 26, 1), ("last", 27, 8),
    ]  # fmt: skip
    assert Outer.size == Outer.dtype.itemsize == 35
    assert Outer.offset_of("raw") == 26


def test_integers_are_little_endian_and_of_their_own_size() -> None:
    parsed = Outer.parse(RAW)
    assert parsed.magic == 0x0100
    assert parsed.one.b == 0x06050403
    assert parsed.numbers.tolist() == [0x1716, 0x1918]
    assert parsed.raw == b"\x1a"
    assert parsed.last == int.from_bytes(RAW[27:], "little")
    assert [Outer.dtype[name].itemsize for name in ("magic", "last")] == [2, 8]


def test_what_is_parsed_can_be_changed_and_built() -> None:
    parsed = Outer.parse(RAW)
    parsed.one.a = 0xFF
    parsed.many[2].b = 0xDDCCBBAA
    parsed.numbers[1] = 0x1234
    built = parsed.build()
    changed = {i for i in range(len(RAW)) if built[i] != RAW[i]}
    assert changed == {2, 18, 19, 20, 21, 24, 25}


def test_a_table_is_a_view_of_whole_structures() -> None:
    area = np.frombuffer(bytearray(RAW * 3 + b"rest"), np.uint8)
    table = Outer.table(area)
    assert table.shape == (3,)
    table["last"][1] = 0
    assert not area[Outer.size + 27 : 2 * Outer.size].any()
    assert area[27:35].any()


def test_the_block_size_changes_what_depends_on_it_and_nothing_else() -> None:
    big = Outer.at(16384)
    assert big.size == 35 + 2 * 6 + 16384 % 5 - 1
    assert big.at(4096) is Outer
    assert Outer.at(16384) is big
    assert big.at(8192) is Outer.at(8192)
    assert Outer.offset_of("last") == 27
    assert big.kernel_name() == "outer"


def test_the_quick_way_takes_the_fields_before_one() -> None:
    form, names = Outer.unpacker(until="numbers")
    assert names == ("magic", "one", "many")
    assert form.unpack_from(RAW) == (0x0100, RAW[2:7], RAW[7:22])


def test_a_new_structure_takes_values_by_name() -> None:
    made = Outer(magic=7, one=Inner(a=1, b=2))
    assert made.build()[:7] == b"\x07\x00\x01\x02\x00\x00\x00"
    assert made == Outer.parse(made.build())
    assert made != Outer()
    with pytest.raises(TypeError, match="has no field nonsense"):
        Outer(nonsense=1)


def test_too_few_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="Outer takes 35 bytes, 34 given"):
        Outer.parse(RAW[:-1])


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("magic", 1 << 16, "Outer: magic has 2 bytes, too few for 65536"),
        ("magic", -1, "Outer: magic has 2 bytes, too few for -1"),
        ("raw", b"", "raw takes 1 bytes, 0 given"),
        ("raw", b"ab", "raw takes 1 bytes, 2 given"),
        ("numbers", [1, 2, 3], "numbers takes 4 bytes, 6 given"),
        ("many", [Inner()], "many takes 15 bytes, 5 given"),
    ],
)
def test_a_value_that_its_field_has_no_room_for_is_refused(name: str, value: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Outer(**{name: value}).build()


def test_a_number_where_bytes_belong_is_refused() -> None:
    with pytest.raises(TypeError):
        Outer(raw=1).build()


def test_a_field_may_not_hide_a_part_of_the_codec() -> None:
    with pytest.raises(TypeError, match="the codec uses this name itself"):
        type("Bad", (Layout,), {"__annotations__": {"parse": u8}, "parse": field("hides the parser")})


def test_a_structure_as_plain_values() -> None:
    shown = Outer.parse(RAW).as_dict()
    assert shown["one"] == {"a": 2, "b": 0x06050403}
    assert shown["many"][0] == {"a": 7, "b": 0x0B0A0908}
    assert shown["numbers"] == [0x1716, 0x1918]
    assert "magic=256" in repr(Outer.parse(RAW))


def test_types_are_named_as_the_kernel_names_them() -> None:
    assert [f.type_name for f in Outer.fields] == [
        "__le16", "struct inner", "struct inner[3]", "__le16[2]", "__u8[1]", "__le64",
    ]  # fmt: skip
    assert str(Int(1)) == "__u8"


@pytest.mark.parametrize(
    "values", [[1 << 32, 0, 0], [-1, 0, 0], [1 << 70, 0, 0], np.array([1 << 40, 0, 0]), np.array([1.5, 0, 0])]
)
def test_an_array_with_a_number_that_does_not_fit_is_refused(values: Any) -> None:
    class Three(Layout):
        """struct three"""

        r: Annotated[Ints, Array(u32, 3)] = field("numbers")

    with pytest.raises(ValueError, match="r has 4 bytes a number, too few for"):
        Three(r=values).build()
    assert Three(r=[1, 2, 0xFFFFFFFF]).build() == np.array([1, 2, 0xFFFFFFFF], "<u4").tobytes()
    assert Three(r=np.array([1, 2, 3], ">i8")).build() == np.array([1, 2, 3], "<u4").tobytes()


@pytest.mark.parametrize("value", [None, "x", 1.5])
def test_what_is_no_integer_is_refused_by_its_name(value: Any) -> None:
    class One(Layout):
        """struct one"""

        x: u32 = field("a number")

    with pytest.raises(ValueError, match="One: x has 4 bytes, too few for"):
        One(x=value).build()
