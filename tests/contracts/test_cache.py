"""Compiled contracts: what is decoded is what was encoded, and what is damaged or foreign is made anew."""

from __future__ import annotations

import hashlib
import os
import random
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from hwtool_contracts import cache, wire
from hwtool_contracts.judge import judge_read
from hwtool_contracts.library import CACHED_BYTES, bundled, bundled_names, find
from hwtool_contracts.model import Contract, Space
from hwtool_contracts.native import parse_contract
from hwtool_contracts.notice import Imported, Notice
from hwtool_contracts.places import overlapping, places_of
from hwtool_contracts.toml_reader import Fault, Faults
from tests.svd_text import cluster, contract, device, field, imported, peripheral, register, tags

ONE = imported(
    peripheral(
        "P",
        register("A", 0, tags(readAction="clear", resetValue=3, resetMask=1), [field("F"), field("G", "[3:1]")]),
        register("B", 2, tags(size=16)),
        cluster("C", register("R%s", 0, tags(dim=200, dimIncrement=4), [field("F", "[1:0]")]), offset=0x100),
    ),
    peripheral("Q", base=0, derived="P"),
)
OTHER = Imported(contract(peripheral("Z", register("R"))), (Notice("f", "p", "r", "w", "m"),))
HEAD = 'schema = 1\npart = "p"\nvendor = "v"\ntitle = "t"\nsource = "s"\n[access]\noffset_bytes = 1\n'


class Maker:
    """A maker of contracts that knows how often it was asked."""

    def __init__(self, made: Imported) -> None:
        self.made = made
        self.calls = 0

    def __call__(self) -> Imported:
        self.calls += 1
        return self.made


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.contract"))


# wire


@pytest.mark.parametrize("name", bundled_names())
def test_bundled_chip_when_encoded_and_decoded_then_equal(name: str) -> None:
    found = Imported(bundled(name), ())
    data = wire.encode(found)
    again = wire.decode(data)
    assert again == found
    assert list(again.contract.registers) == list(found.contract.registers)
    assert wire.encode(again) == data
    for register_name, one in found.contract.registers.items():
        assert again.contract.registers[register_name] == one
        assert overlapping(again.contract, one) == overlapping(found.contract, one)
        assert judge_read(again.contract, (one,)) == judge_read(found.contract, (one,))


RICH = (
    HEAD
    + """
byte_order = "little"
[access.i2c]
addresses = [0x20, 0x21]
auto_increment = "both"
[access.modbus]
base = 1
functions = [3, 6]
[registers.S]
offset = 1
access = "rw"
read = { effects = ["none"], provenance = "generated" }
write = { effect = "store", provenance = "generated" }
[registers.F]
offset = 4
access = "rw"
width_bits = 32
encoding = "float32"
scale = "0.10"
unit = "V"
persistence = "nonvolatile"
owner = "shared"
sensitive = true
volatile = "unknown"
bank = "B"
values = { a = 1 }
read.effects = ["pop", "ack"]
read.affects = ["S"]
read.level = "S"
read.when_empty = "0"
read.max_burst = 4
read.peek = "S"
read.gate = "S"
fields.X = { bits = "3:0", reserved = "keep", reset = 3, values = { on = 1 }, volatile = false, description = "x" }
[registers.F.write]
effect = "command"
approval = "required"
window_ms = 5
mask = 3
limits = { min = -1.50, max = 2 }
values = { go = 1 }
gate = "S"
verify = { by = "signal", register = "S", mask = 1 }
signals = ["S", { register = "S", delta = -1 }, { register = "S", equals = 4 }]
[registers.H]
offset = 2
space = "holding"
access = "rw"
[banks.B]
select = [{ register = "S", value = 1, mask = 1 }]
restore = "none"
[groups.G]
members = ["S", "H"]
[identity]
register = "S"
equals = 3
"""
)


def test_contract_when_it_has_everything_then_encoded_and_decoded_equal() -> None:
    rich = parse_contract(RICH.replace('members = ["S", "H"]', 'members = ["S", "S"]'), "rich.toml")
    found = Imported(rich, OTHER.notices)
    again = wire.decode(wire.encode(found))
    assert again == found
    limits = again.contract.registers["F"].write.limits
    assert limits is not None
    assert (str(limits.minimum), limits.maximum) == ("-1.50", Decimal(2))
    assert again.contract.registers["H"].space is Space.HOLDING
    assert str(again.contract.registers["F"].quantity.scale) == "0.10"


def test_registers_when_decoded_then_a_mapping_in_the_order_of_the_contract() -> None:
    again = wire.decode(wire.encode(ONE)).contract.registers
    assert len(again) == len(ONE.contract.registers) == 404
    assert "P.A" in again
    assert "P.X" not in again
    with pytest.raises(KeyError):
        again["P.X"]
    assert again["P.A"] is again["P.A"]
    assert again["P.C.R7"].fields is again["P.C.R8"].fields
    assert dict(again) == dict(ONE.contract.registers)


def test_places_when_decoded_then_the_index_finds_neighbours() -> None:
    again = wire.decode(memoryview(wire.encode(ONE))).contract
    names = places_of(again).names(Space.MEMORY, 0x40000000, 0x40000004)
    assert names == places_of(ONE.contract).names(Space.MEMORY, 0x40000000, 0x40000004) == ["P.A", "P.B"]
    assert places_of(again).names(Space.HOLDING, 0, 100) == []


NO_CONTRACT = [
    b"",
    b"\xc0",
    b"hello",
    wire.encode(OTHER)[:-1],
    wire.encode(OTHER)[:40],
    wire.encode(OTHER) + b"\xc0",
    msgspec.msgpack.encode([]),
    msgspec.msgpack.encode({"version": 1}),
]


@pytest.mark.parametrize("data", NO_CONTRACT, ids=range(len(NO_CONTRACT)))
def test_bytes_when_no_contract_then_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="compiled contract"):
        wire.decode(data)


def test_bytes_when_of_another_version_then_a_value_error() -> None:
    whole = msgspec.msgpack.decode(wire.encode(OTHER))
    whole[0] = wire.VERSION + 1
    with pytest.raises(ValueError, match=f"version {wire.VERSION + 1}, not {wire.VERSION}"):
        wire.decode(msgspec.msgpack.encode(whole))


def test_names_when_fewer_than_places_say_then_a_value_error() -> None:
    whole = msgspec.msgpack.decode(wire.encode(OTHER))
    whole[3] = [0]
    broken = wire.decode(msgspec.msgpack.encode(whole)).contract
    with pytest.raises(ValueError, match="zip"):
        places_of(broken).names(Space.MEMORY, 0, 1)


# the directory


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"HWTOOL_CACHE_DIR": "/own"}, Path("/own")),
        ({"HWTOOL_CACHE_DIR": "", "XDG_CACHE_HOME": "/xdg"}, Path("/xdg/hwtool/contracts")),
        ({"HWTOOL_CACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": "/home/me"}, Path("/home/me/.cache/hwtool/contracts")),
    ],
    ids=["own", "xdg", "home"],
)
def test_directory_when_the_environment_says_then_there(
    environment: dict[str, str], wanted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache.directory() == wanted


def test_cache_when_nobody_has_a_home_then_made_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(cache, "directory", nobody)
    make = Maker(ONE)
    assert cache.cached([b"x"], make) is cache.cached([b"x"], make) is ONE
    assert make.calls == 2


# hits and misses


def test_cache_when_asked_twice_then_made_once_and_equal(own_cache: Path) -> None:
    make = Maker(ONE)
    first = cache.cached([b"a", b"b"], make)
    second = cache.cached([b"a", b"b"], make)
    assert make.calls == 1
    assert first is ONE
    assert second == ONE
    assert len(files(own_cache)) == 1
    assert files(own_cache)[0].stat().st_mode & 0o077 == 0


def test_cache_when_sources_differ_then_made_again(own_cache: Path) -> None:
    make = Maker(ONE)
    for sources in ([b"ab"], [b"a", b"b"], [b"b", b"a"], [], [b""], [b"", b""]):
        cache.cached(sources, make)
    assert make.calls == 6
    assert len(files(own_cache)) == 6


def test_cache_when_the_maker_finds_faults_then_nothing_is_kept(own_cache: Path) -> None:
    def broken() -> Imported:
        raise Faults([Fault("f", "", "", "r", "", "w")])

    with pytest.raises(Faults):
        cache.cached([b"x"], broken)
    assert files(own_cache) == []


@pytest.mark.parametrize("what", ["hwtool", "format"])
def test_cache_when_a_version_has_changed_then_made_again(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Maker(ONE)
    cache.cached([b"x"], make)
    if what == "hwtool":
        monkeypatch.setattr(cache, "_version", lambda: "99")
    else:
        monkeypatch.setattr(wire, "VERSION", 99)
    cache.cached([b"x"], make)
    assert make.calls == 2


def test_version_when_asked_then_that_of_the_installed_hwtool() -> None:
    assert cache._version()


# damage


@pytest.fixture
def kept(own_cache: Path) -> Path:
    cache.cached([b"x"], Maker(OTHER))
    return files(own_cache)[0]


def rebuilt(path: Path) -> None:
    """The file at this path is not believed; the contract is made anew and kept, and then opened."""
    make = Maker(OTHER)
    assert cache.cached([b"x"], make) == OTHER
    assert make.calls == 1
    assert cache.cached([b"x"], make) == OTHER
    assert make.calls == 1
    assert files(path.parent) == [path]


def test_file_when_any_byte_is_flipped_then_made_anew_and_never_another_contract(kept: Path) -> None:
    whole = kept.read_bytes()
    chance = random.Random(7)
    for at in [*range(60), *(chance.randrange(len(whole)) for _ in range(200))]:
        kept.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << chance.randrange(8))]) + whole[at + 1 :])
        make = Maker(OTHER)
        assert cache.cached([b"x"], make) == OTHER
        assert make.calls == 1
        assert kept.read_bytes() == whole


def test_file_when_cut_or_longer_then_made_anew(kept: Path) -> None:
    whole = kept.read_bytes()
    for data in (b"", whole[:5], whole[:16], whole[:30], whole[:48], whole[:-1], whole + b"x", b"\0" * len(whole)):
        kept.write_bytes(data)
        rebuilt(kept)


def test_file_when_its_checksum_is_right_and_its_content_no_contract_then_made_anew(kept: Path) -> None:
    for content in (b"", b"\xc0", wire.encode(OTHER)[:-3]):
        kept.write_bytes(cache.MAGIC + hashlib.sha256(content).digest() + content)
        rebuilt(kept)


def test_file_when_it_holds_the_contract_of_another_version_then_made_anew(kept: Path) -> None:
    other = msgspec.msgpack.decode(wire.encode(ONE))
    other[0] = 99
    content = msgspec.msgpack.encode(other)
    kept.write_bytes(cache.MAGIC + hashlib.sha256(content).digest() + content)
    rebuilt(kept)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o660], ids=oct)
def test_file_when_others_may_write_it_then_not_believed(kept: Path, mode: int) -> None:
    content = wire.encode(ONE)
    kept.write_bytes(cache.MAGIC + hashlib.sha256(content).digest() + content)
    assert cache.cached([b"x"], Maker(OTHER)) == ONE  # as itself it would be
    kept.chmod(mode)
    rebuilt(kept)
    assert kept.stat().st_mode & 0o022 == 0


def test_file_when_it_belongs_to_somebody_else_then_not_believed(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = wire.encode(ONE)
    kept.write_bytes(cache.MAGIC + hashlib.sha256(content).digest() + content)
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    make = Maker(OTHER)
    assert cache.cached([b"x"], make) == OTHER
    assert make.calls == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_file_when_given_to_somebody_else_then_not_believed(kept: Path) -> None:
    os.chown(kept, 12345, -1)
    rebuilt(kept)
    assert kept.stat().st_uid == 0


def test_file_when_a_directory_stands_in_its_place_then_made_each_time(kept: Path) -> None:
    kept.unlink()
    kept.mkdir()
    make = Maker(OTHER)
    assert cache.cached([b"x"], make) is cache.cached([b"x"], make) is OTHER
    assert [p.name for p in kept.parent.iterdir()] == [kept.name]


def test_directory_when_it_cannot_be_made_then_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HWTOOL_CACHE_DIR", str(tmp_path / "file" / "cache"))
    make = Maker(ONE)
    assert cache.cached([b"x"], make) is cache.cached([b"x"], make) is ONE
    assert make.calls == 2


def test_directory_when_it_is_not_there_then_made_for_the_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HWTOOL_CACHE_DIR", str(tmp_path / "a" / "b"))
    cache.cached([b"x"], Maker(ONE))
    assert (tmp_path / "a" / "b").stat().st_mode & 0o077 == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_directory_when_not_writable_then_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shut").mkdir(mode=0o500)
    monkeypatch.setenv("HWTOOL_CACHE_DIR", str(tmp_path / "shut"))
    make = Maker(ONE)
    assert cache.cached([b"x"], make) is ONE
    assert list((tmp_path / "shut").iterdir()) == []


def test_disk_when_full_then_done_without_and_nothing_is_left(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    make = Maker(ONE)
    assert cache.cached([b"x"], make) is ONE
    assert list(own_cache.iterdir()) == []


def test_files_when_there_are_many_then_the_oldest_go(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_FILES", 3)
    kept: list[Path] = []
    for number in range(5):
        cache.cached([bytes([number])], Maker(OTHER))
        new = next(p for p in files(own_cache) if p not in kept)
        os.utime(new, (number, number))
        kept.append(new)
    assert set(files(own_cache)) == set(kept[-3:])


# through the library


def test_svd_when_opened_twice_then_imported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hwtool_contracts.importers import svd

    calls = 0
    parse = svd.parse_svd

    def counted(data: bytes, file: str) -> Imported:
        nonlocal calls
        calls += 1
        return parse(data, file)

    monkeypatch.setattr(svd, "parse_svd", counted)
    path = tmp_path / "toy.svd"
    path.write_text(device(peripheral("P", register("R", 0, tags(readAction="odd")))))
    first, second = find("toy.svd", tmp_path), find(str(path))
    assert calls == 1
    assert first == second
    assert len(second.notices) == 1
    path.write_text(path.read_text().replace("odd", "clear"))
    assert not find("toy.svd", tmp_path).notices
    assert calls == 2
    (tmp_path / "other.svd").write_text(path.read_text())
    assert find("other.svd", tmp_path).contract.source == "other.svd"


def test_toml_when_small_then_not_cached_and_when_large_then_it_is(tmp_path: Path, own_cache: Path) -> None:
    text = HEAD + '[access.i2c]\naddresses = [0x20]\n[registers.R]\noffset = 0\naccess = "rw"\n'
    (tmp_path / "small.toml").write_text(text)
    find("small.toml", tmp_path)
    assert files(own_cache) == []
    (tmp_path / "large.toml").write_text(text + "#" * CACHED_BYTES)
    assert find("large.toml", tmp_path) == find("large.toml", tmp_path)
    assert len(files(own_cache)) == 1


def test_svd_when_a_limit_is_wider_than_its_register_then_cut_to_it_and_kept(tmp_path: Path) -> None:
    said = "<writeConstraint><range><maximum>0x1FFFFFFFFFFFFFFFF</maximum></range></writeConstraint>"
    (tmp_path / "toy.svd").write_text(device(peripheral("P", register("R", 0, said))))
    limits = find("toy.svd", tmp_path).contract.registers["P.R"].write.limits
    assert limits is not None and limits.maximum == 0xFFFF_FFFF


def equal(one: Contract, other: Contract) -> bool:
    return one == other


def test_contract_when_compared_with_its_copy_from_the_cache_then_equal_both_ways() -> None:
    again = wire.decode(wire.encode(ONE)).contract
    assert equal(again, ONE.contract)
    assert equal(ONE.contract, again)
    assert not equal(again, OTHER.contract)
