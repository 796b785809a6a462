"""The kernel objects of readers: windows and lists of messages."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from rocketstore import formats
from support.kernel_bodies import Bodies
from support.reading_files import Files


def selected(*positions: int) -> bytearray:
    """Rows of records at these positions."""
    row = formats.SELECTED_MESSAGE.struct
    return bytearray(b"".join(row.pack(position, 0, 0, 100, 0) for position in positions))


def test_a_list_of_messages(kernels: Bodies) -> None:
    files = Files(kernels)
    messages = kernels.reading.MessageList()
    first = files.offsets.index(1024)
    for segment, start in ((0, 0), (1, first)):
        part = kernels.reading.MessageList()
        positions = [offset - segment * 1024 for offset in files.offsets[start : start + 2]]
        part.add(files.window(segment), selected(*positions), 2)
        messages.extend(part)
    messages.extend(kernels.reading.MessageList())
    assert [m.physical_offset for m in messages] == [
        *files.offsets[:2], *files.offsets[first : first + 2]
    ]  # fmt: skip
    offsets = [message.physical_offset for message in messages]
    assert len(messages) == 4
    assert offsets == [messages[n].physical_offset for n in range(4)]
    assert [m.physical_offset for m in messages[1:3]] == offsets[1:3]
    assert [m.physical_offset for m in reversed(messages)] == offsets[::-1]
    assert messages[-1] == messages[3]
    assert messages.index(messages[2]) == 2
    assert messages.count(messages[0]) == 1
    assert messages[1] in messages
    assert repr(messages) == "<4 messages>"
    for wrong in (4, -5):
        with pytest.raises(IndexError, match="message index out of range"):
            messages[wrong]
    with pytest.raises(ValueError, match="2 rows are not within 24 bytes"):
        messages.add(files.window(0), bytearray(24), 2)


def test_a_message_that_has_gone_raises_what_the_window_says(kernels: Bodies) -> None:
    class Named(kernels.reading.Window):  # type: ignore[name-defined,misc]
        def gone(self, position: int) -> Exception:
            return KeyError(position)

    files = Files(kernels)
    messages = kernels.reading.MessageList()
    messages.add(Named(files.segments[0], 0, 1024, 1024, 0, 0), selected(0), 1)
    assert messages[0].physical_offset == 0
    files.segments[0][:] = bytes(1024)
    with pytest.raises(KeyError):
        messages[0]


def test_wrong_arguments(kernels: Bodies) -> None:
    files = Files(kernels)
    with pytest.raises(ValueError, match="a segment cannot have 0 bytes"):
        kernels.reading.Windows(0)
    with pytest.raises(ValueError, match="do not lie in order within 1024 bytes"):
        kernels.reading.Window(files.segments[0], 0, 1024, 1025, 0, 0)


def held(kernels: Bodies, kind: str, view: memoryview) -> Any:
    if kind == "a window":
        return kernels.reading.Window(view, 0, 1024, 1024, 0, 0)
    if kind == "a window of a subclass":
        kind_of_window = type("Named", (kernels.reading.Window,), {})
        return kind_of_window(view, 0, 1024, 1024, 0, 0)
    if kind == "a message":
        return kernels.message.StoredMessage(view, 0, 0, 1024)
    window = kernels.reading.Window(view, 0, 1024, 1024, 0, 0)
    if kind == "windows":
        windows = kernels.reading.Windows(1024)
        windows.add(window)
        return windows
    messages = kernels.reading.MessageList()
    messages.add(window, selected(0), 1)
    return iter(messages) if kind == "an iterator" else messages


@pytest.mark.parametrize("inside", [True, False], ids=["view in the ring", "view outside"])
@pytest.mark.parametrize(
    "kind",
    ["a window", "a window of a subclass", "a message", "windows", "messages", "an iterator"],
)
def test_the_garbage_collector_releases_the_buffer(
    kernels: Bodies, kind: str, inside: bool
) -> None:
    """It cleared the view or its owner first: the process crashed, or an export was left and a
    later call, such as close, failed with SystemError."""
    buffer = bytearray(Files(kernels).segments[0])
    gc.collect()
    gc.disable()  # so that one collection sees the whole ring, the oldest object first
    try:
        view = memoryview(buffer)
        ring: list[Any] = [held(kernels, kind, view)]
        ring.append(ring)
        if inside:
            ring.append(view)
            del view
        del ring
        gc.collect()
        if not inside:
            view.release()
    finally:
        gc.enable()
    buffer.append(0)  # raises while anything exports it


def test_finalizers_read_messages_while_one_is_made(kernels: Bodies) -> None:
    """Making a message may collect garbage, and so make other messages first."""
    files = Files(kernels)
    messages = kernels.reading.MessageList()
    messages.add(files.window(0), selected(*files.offsets[:2]), 2)
    found: list[int] = []

    class Reads:
        def __init__(self) -> None:
            self.ring = self

        def __del__(self) -> None:
            found.append(messages[0].physical_offset)

    gc.collect()
    gc.disable()
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for number in range(100):
            following = iter(messages)
            Reads()
            gc.enable()  # the message is what is allocated next
            message = next(following)
            gc.disable()
            assert message.physical_offset == files.offsets[0]
            assert len(found) == number + 1
            with pytest.raises(TypeError):
                kernels.message.StoredMessage()
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
    assert found == [files.offsets[0]] * 100
