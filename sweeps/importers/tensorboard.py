"""TensorBoard's event files, read record by record.

A record is its length (8 bytes), the length's checksum (4), an Event, and its checksum (4); see
tensorflow/core/lib/io/record_writer.h. The messages are those that tensorboardX brings; the
checksum of the data is not looked at.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from sweeps.importers.collector import Collector, Record
from sweeps.importers.errors import LogError

if TYPE_CHECKING:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary

MARK = "tfevents"
"""Stands in the name of every event file."""
LARGEST_RECORD = 256 * 2**20
"""Bytes; a larger record is damage."""
_FLOAT, _DOUBLE = 1, 2
"""TensorFlow's numbers for these types."""


def event_files(folder: Path) -> list[Path]:
    """The event files of a run's folder, the oldest first: their names begin with their time."""
    return sorted(path for path in folder.iterdir() if MARK in path.name and path.is_file())


class Events:
    """A run's folder of event files, or a single one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ended = False
        self._cut: list[str] = []

    def read(self, collector: Collector, *, wait: bool = False) -> None:  # noqa: ARG002
        """Add every scalar, and the settings that the Trainer writes as text.

        Raises:
            LogError: a file is no event file.
        """  # noqa: DOC502 - raised by what it calls
        for file in event_files(self.path) if self.path.is_dir() else [self.path]:
            for place, event in enumerate(self._events(file), start=1):
                values = dict(_scalars(event))
                if values:
                    collector.add(Record({"step": event.step, **values}, place))

    def notes(self) -> list[str]:
        """What was odd about the files."""
        return [f"{name} is cut off; what comes before was read" for name in self._cut]

    def _events(self, file: Path) -> Iterator["Event"]:
        """The events of a file.

        Raises:
            LogError: a record is no event.
        """
        from google.protobuf.message import DecodeError  # noqa: PLC0415 - only for such logs
        from tensorboardX.proto.event_pb2 import Event  # noqa: PLC0415

        with file.open("rb") as stream:
            for place, content in enumerate(self._records(stream, file), start=1):
                try:
                    yield Event.FromString(content)
                except DecodeError as error:
                    raise LogError(f"{file}: record {place} is no event: {error}") from error

    def _records(self, stream: BinaryIO, file: Path) -> Iterator[bytes]:
        """The contents of a file's records.

        Raises:
            LogError: a record is damaged.
        """
        from tensorboardX.record_writer import masked_crc32c  # noqa: PLC0415 - only for such logs

        place = 0
        while head := stream.read(12):
            place += 1
            if len(head) < 12:
                self._cut.append(file.name)
                return
            (length,) = struct.unpack("<Q", head[:8])
            (checksum,) = struct.unpack("<I", head[8:])
            if length > LARGEST_RECORD or masked_crc32c(head[:8]) != checksum:
                raise LogError(f"{file}: record {place} is damaged; wanted an event file")
            content = stream.read(length + 4)
            if len(content) < length + 4:
                self._cut.append(file.name)
                return
            yield content[:length]


def _scalars(event: "Event") -> Iterator[tuple[str, Any]]:
    for value in event.summary.value:
        if value.HasField("simple_value"):
            yield value.tag, value.simple_value
        elif value.HasField("tensor"):
            number = _of_tensor(value)
            if number is not None:
                yield value.tag, number
            elif value.tag.split("/")[0] in ("args", "model_config"):
                yield from _settings(value)


def _of_tensor(value: "Summary.Value") -> float | None:
    tensor = value.tensor
    if tensor.dtype == _FLOAT and len(tensor.float_val) == 1:
        return float(tensor.float_val[0])
    if tensor.dtype == _DOUBLE and len(tensor.double_val) == 1:
        return float(tensor.double_val[0])
    sizes = {_FLOAT: "<f", _DOUBLE: "<d"}
    form = sizes.get(tensor.dtype)
    if form and len(tensor.tensor_content) == struct.calcsize(form):
        return float(struct.unpack(form, tensor.tensor_content)[0])
    return None


def _settings(value: "Summary.Value") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The Trainer's arguments: transformers' TensorBoardCallback adds them as JSON text."""
    if value.tag.split("/")[0] != "args" or not value.tensor.string_val:
        return
    try:
        stated = json.loads(value.tensor.string_val[0])
    except ValueError:
        return
    if isinstance(stated, dict):
        yield "args", stated
