"""Sessions: copies, ranges, listings, changes, progress."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from conftest import Server

import sabul


def made(path: Path, size: int, seed: int = 1) -> bytes:
    """Writes a file of this size and returns its content."""
    content = random.Random(seed).randbytes(size)
    path.write_bytes(content)
    return content


def test_a_file_arrives_with_its_content(session: sabul.Session, folder: Path, tmp_path: Path) -> None:
    content = made(tmp_path / "a", 3_000_000)
    report = session.put(tmp_path / "a", f"{folder.name}/b")
    assert (folder / "b").read_bytes() == content
    assert (report.bytes, report.files, report.failed) == (len(content), 1, 0)
    assert report.verified and report.durable and report.errors == ()
    assert report.seconds > 0 and report.goodput_bps > 0 and report.packets_sent > 0


def test_a_tree_returns_as_it_was_sent(session: sabul.Session, folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "below").mkdir(parents=True)
    contents = {name: made(source / name, 10_000, seed) for seed, name in enumerate(["x", "below/y"])}
    assert session.put(source, folder.name + "/", recursive=True).files == 2
    report = session.get(f"{folder.name}/tree/", tmp_path / "back", recursive=True)
    assert report.files == 2
    for name, content in contents.items():
        assert (tmp_path / "back" / name).read_bytes() == content


def test_several_sources_arrive_in_a_directory(session: sabul.Session, folder: Path, tmp_path: Path) -> None:
    for name in "ab":
        made(tmp_path / name, 10)
    assert session.put([tmp_path / "a", tmp_path / "b"], folder.name).files == 2
    got = session.get([f"{folder.name}/a", f"{folder.name}/b"], tmp_path / "got")
    assert got.files == 2 and sorted(os.listdir(tmp_path / "got")) == ["a", "b"]


def test_ranges_are_parts_of_the_file(session: sabul.Session, folder: Path) -> None:
    content = made(folder / "a", 200_000)
    path = f"{folder.name}/a"
    assert session.read(path) == content
    assert session.cat(path, 100) == content[100:]
    for offset, length in [(0, 1), (65_000, 1000), (199_999, 50), (200_000, 5), (7, 0)]:
        assert session.read(path, offset, length) == content[offset : offset + length]
    with pytest.raises(sabul.FailedError, match="200000 bytes"):
        session.read(path, 200_001)


def test_bytes_become_a_file(session: sabul.Session, folder: Path) -> None:
    for content in (b"", b"short", random.Random(2).randbytes(2_500_000)):
        assert session.put_bytes(content, f"{folder.name}/c").bytes == len(content)
        assert (folder / "c").read_bytes() == content


def test_bytes_create_the_directories_of_their_file_and_never_go_into_a_directory(
    session: sabul.Session, folder: Path
) -> None:
    session.put_bytes(b"deep", f"{folder.name}/a/b/c")
    assert (folder / "a" / "b" / "c").read_bytes() == b"deep"
    for path in (f"{folder.name}/a", f"{folder.name}/a/"):
        with pytest.raises(sabul.Error, match=r"folder|directory"):
            session.put_bytes(b"x", path)
    assert [path.name for path in (folder / "a").iterdir()] == ["b"]


def test_a_listing_names_kinds_and_sizes(session: sabul.Session, folder: Path) -> None:
    (folder / "below").mkdir()
    made(folder / "below" / "b", 5)
    made(folder / "a", 3)
    os.symlink("a", folder / "link")
    os.utime(folder / "a", ns=(0, 1_600_000_000_123_456_789))
    found = {entry.name: entry for entry in session.list(folder.name)}
    assert {name: entry.kind for name, entry in found.items()} == {"a": "file", "below": "directory", "link": "link"}
    assert found["a"].bytes == 3 and found["a"].modified_ns == 1_600_000_000_123_456_789
    assert "below/b" in {entry.path.removeprefix(folder.name + "/") for entry in session.list(folder.name, True)}
    assert session.stat(f"{folder.name}/a").bytes == 3
    assert session.stat(f"{folder.name}/link").kind == "link"
    assert session.list(f"{folder.name}/a")[0].bytes == 3


def test_names_that_are_no_text_are_kept(session: sabul.Session, folder: Path, tmp_path: Path) -> None:
    name = b"caf\xe9 *"
    made(Path(os.fsdecode(os.path.join(os.fsencode(folder), name))), 4)
    (entry,) = session.list(folder.name)
    assert os.fsencode(entry.name) == name
    exact = sabul.escape(entry.path)
    assert len(session.read(exact)) == 4
    session.get(exact, tmp_path / "x")
    assert (tmp_path / "x").stat().st_size == 4


def test_names_are_made_changed_and_removed(session: sabul.Session, folder: Path) -> None:
    base = folder.name
    session.mkdir(f"{base}/a/b", parents=True)
    session.mkdir(f"{base}/a/b", parents=True)
    made(folder / "f", 1)
    session.mv(f"{base}/f", f"{base}/a/g")
    assert (folder / "a" / "g").exists() and not (folder / "f").exists()
    session.rm(f"{base}/a/g")
    session.rm(f"{base}/a", recursive=True)
    assert list(folder.iterdir()) == []


def test_an_address_with_a_path_is_the_base_of_all_paths(server: Server, folder: Path, tmp_path: Path) -> None:
    content = made(tmp_path / "a", 100)
    with sabul.connect(f"sabul:///{folder.name}", ticket_file=server.ticket) as session:
        session.put(tmp_path / "a", "b")
        assert (folder / "b").read_bytes() == content == session.read("b")
        assert [entry.path for entry in session.list()] == ["b"]
        assert session.stat("b").path == "b"
        session.rm("b")
    assert list(folder.iterdir()) == []


def test_a_path_in_the_address_is_no_pattern_for_names(server: Server, folder: Path, tmp_path: Path) -> None:
    for name in ("d1/report[1].csv", "d1/missing", "d[1]/report[1].csv", "d[1]/]"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    with sabul.connect(f"sabul:///{folder.name}/d[1]", ticket_file=server.ticket) as session:
        for name in ("report[1].csv", "]"):
            for exact in (sabul.escape(name), name):
                session.get(exact, tmp_path / "got")
                assert (tmp_path / "got").read_text() == f"d[1]/{name}" == session.read(exact).decode()
                assert session.stat(exact).path == name
        assert sorted(entry.path for entry in session.list()) == ["]", "report[1].csv"]
        for act in (session.read, session.stat, session.list):
            with pytest.raises(sabul.NotFoundError):
                act("missing")


def test_names_that_look_quoted_are_quoted_again(session: sabul.Session, folder: Path, tmp_path: Path) -> None:
    base = os.fsencode(folder.name)
    for other, name in ((b"\xe9[1]", b"\xe9\\[1\\]"), (b"e[1]", b"e\\[1\\]")):
        for path in (other, name):
            made(Path(os.fsdecode(os.fsencode(folder) + b"/" + path)), len(path))
        exact = sabul.escape(os.fsdecode(base + b"/" + name))
        assert session.stat(exact).bytes == len(session.read(exact)) == len(name)
        session.get(exact, tmp_path / "got")
        assert (tmp_path / "got").stat().st_size == len(name)


def test_the_progress_ends_with_all_bytes(session: sabul.Session, folder: Path, tmp_path: Path) -> None:
    content = made(tmp_path / "a", 8_000_000)
    seen: list[sabul.Progress] = []
    session.put(tmp_path / "a", folder.name + "/", progress=seen.append, bwlimit_bps=100_000_000)
    assert len(seen) > 2 and seen[-1].bytes == len(content) == seen[-1].bytes_total
    assert [one.bytes for one in seen] == sorted(one.bytes for one in seen)
    assert any(0 < one.goodput_bps < 200_000_000 for one in seen)


def test_an_error_of_the_progress_callback_cancels_the_copy(
    session: sabul.Session, folder: Path, tmp_path: Path
) -> None:
    made(tmp_path / "a", 20_000_000)

    def stop(_: sabul.Progress) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        session.put(tmp_path / "a", f"{folder.name}/b", progress=stop, bwlimit_bps=50_000_000)
    assert not (folder / "b").exists()
    # The session is of use after a cancelled transfer.
    assert session.put_bytes(b"x", f"{folder.name}/c").bytes == 1


def test_unknown_arguments_are_refused(session: sabul.Session, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="speed"):
        session.put(tmp_path, folder.name, speed=3)  # type: ignore[call-arg]


def test_perf_measures_both_directions(server: Server) -> None:
    with sabul.connect(ticket_file=server.ticket) as session:
        sent = session.perf(bytes=2_000_000)
        received = session.perf(0.3, reverse=True)
    assert sent.role == "sender" and sent.report.bytes == 2_000_000
    assert received.role == "receiver" and received.report.bytes > 0
    assert received.intervals and received.intervals[-1].t_s > 0


def test_many_ranges_come_in_one_request(session: sabul.Session, folder: Path) -> None:
    contents = [made(folder / f"f{number}", 50_000, number) for number in range(5)]
    wanted = [(at * 3 % 5, at * 97 % 50_000, at % 700) for at in range(600)]
    ranges = [(f"{folder.name}/f{number}", offset, length) for number, offset, length in wanted]
    found = session.read_ranges(ranges)
    assert found == [contents[number][offset : offset + length] for number, offset, length in wanted]
    assert dict(session.iter_ranges(ranges)) == dict(enumerate(found))
    assert session.read_ranges([]) == [] and list(session.iter_ranges([])) == []


def test_the_error_of_a_range_takes_its_place(session: sabul.Session, folder: Path) -> None:
    content = made(folder / "[a]*", 100)
    name = f"{folder.name}/[a]*"
    found = session.read_ranges([(name, 90, None), (f"{folder.name}/none", 0, 1), (name, 101, 5), (folder.name, 0, 1)])
    assert found[0] == content[90:]
    assert isinstance(found[1], sabul.NotFoundError)
    assert isinstance(found[2], sabul.FailedError) and "byte 101 was requested" in str(found[2])
    assert isinstance(found[3], sabul.FailedError) and "directory" in str(found[3])
    with pytest.raises(sabul.UsageError, match="closed"):
        session.close()
        session.read_ranges([(name, 0, 1)])


def test_facts_and_last_bytes_of_a_file_come_in_one_request(session: sabul.Session, folder: Path) -> None:
    (folder / "x[1].bin").write_bytes(bytes(range(250)) * 400)
    (folder / "link").symlink_to("x[1].bin")
    name = f"{folder.name}/x[1].bin"
    entry, tail = session.stat_with_tail(name)
    assert (entry.path, entry.kind, entry.bytes) == (name, "file", 100_000)
    assert entry == session.stat(sabul.escape(name))
    assert tail == (folder / "x[1].bin").read_bytes()[-65536:]
    assert session.stat_with_tail(name, 3)[1] == bytes([247, 248, 249])
    assert len(session.stat_with_tail(name, 1_000_000)[1]) == 100_000
    assert session.stat_with_tail(f"{folder.name}/link", 3)[0].bytes == 100_000
    with pytest.raises(sabul.NotFoundError):
        session.stat_with_tail(f"{folder.name}/x?1?.bin")
    with pytest.raises(sabul.FailedError):
        session.stat_with_tail(folder.name)
