"""Few pages of a long file are present while it is read forwards."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rocketstore.files import forward_pages
from rocketstore.files.forward_pages import ForwardPages, release_pages
from rocketstore.files.mapped_file import MappedFile

NBYTES = 16 << 20
STEP = 1 << 20


def present(path: Path) -> int:
    """Return the bytes of a file's mapping that are present, by the system."""
    found, is_it = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if "-" in line.split()[0]:
            is_it = line.endswith(str(path))
        elif is_it and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("first", [0, 5000])
def test_pages_are_released_behind_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setattr(forward_pages, "STEP_NBYTES", STEP)
    path = tmp_path / "00000000000000000000"
    path.write_bytes(bytes(range(256)) * (NBYTES // 256))
    file, pages = MappedFile(path, 0, NBYTES, tmp_path), ForwardPages()
    most = 0
    for position in range(first, NBYTES, STEP // 4):
        pages.move(file, position, NBYTES)
        assert file.view[position] == position % 256
        most = max(most, present(path))
    assert 0 < most <= 4 * STEP
    pages.release()
    assert present(path) <= STEP // 4
    assert file.view[3] == 3  # released pages can be read again
    file.close()


def test_nothing_past_the_stop_is_made_present(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward_pages, "STEP_NBYTES", STEP)
    path = tmp_path / "00000000000000000000"
    path.write_bytes(bytes(NBYTES))
    file, pages = MappedFile(path, 0, NBYTES, tmp_path), ForwardPages()
    asked: list[tuple[int, int]] = []

    class Watched:
        def populate_for_reading(self, position: int, length: int) -> bool:
            asked.append((position, length))
            return True

        def advise(self, _: str, position: int, length: int) -> bool:
            return True

    file.mapped = Watched()
    for position in range(0, 3 * STEP, STEP // 2):
        pages.move(file, position, 2 * STEP + 100)
    assert max(start + length for start, length in asked) == 2 * STEP + 100
    starts = [start for start, _ in asked]
    assert starts == sorted(set(starts))


def test_private_memory_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000"
    path.write_bytes(bytes(8192))
    file, pages = MappedFile(path, 0, 8192, tmp_path, private=True), ForwardPages()
    memoryview(file.mapping)[5] = 7
    pages.move(file, 0, 8192)
    pages.move(file, 8192, 8192)
    pages.release()
    assert file.view[5] == 7
    file.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_range_of_pages_is_released(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000"
    path.write_bytes(b"x" * NBYTES)
    file = MappedFile(path, 0, NBYTES, tmp_path)
    release_pages(file)  # not mapped yet
    file.mapping.populate_for_reading(0, NBYTES)
    assert present(path) == NBYTES
    release_pages(file, NBYTES // 2, STEP + 1)
    assert NBYTES // 4 <= present(path) <= NBYTES // 2 + STEP  # huge pages go as a whole
    release_pages(file)
    assert present(path) == 0
    assert bytes(file.view[:2]) == b"xx"
    file.close()


def test_private_pages_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000"
    path.write_bytes(b"x" * STEP)
    file = MappedFile(path, 0, STEP, tmp_path, writable=True, private=True)
    file.mapping.clear(0, 5)
    release_pages(file)
    assert bytes(file.view[:6]) == bytes(5) + b"x"
    assert path.read_bytes() == b"x" * STEP
    file.close()
