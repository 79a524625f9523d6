"""Samples for pprof: gzipped protobuf, as ``go tool pprof``, Pyroscope and Parca read it.

Each sample has two values, its count and its time, and the labels by which pprof can filter:
process, role, rank, thread and phase. The message is defined here rather than generated, because a
generated module is bound to the protobuf runtime for which it was generated.
"""

from __future__ import annotations

import gzip
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from profd.daemon.analyze.coverage import take_lives
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import process_weights, selected_totals
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.render.plaintext import visible
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow

_PACKAGE = "perftools.profiles"
_SCHEMA = {
    "Profile": (
        "1 repeated ValueType sample_type, 2 repeated Sample sample, 4 repeated Location "
        "location, 5 repeated Function function, 6 repeated string string_table, 9 int64 "
        "time_nanos, 10 int64 duration_nanos, 11 ValueType period_type, 12 int64 period, 13 "
        "repeated int64 comment, 14 int64 default_sample_type"
    ),
    "ValueType": "1 int64 type, 2 int64 unit",
    "Sample": "1 repeated uint64 location_id, 2 repeated int64 value, 3 repeated Label label",
    "Label": "1 int64 key, 2 int64 str, 3 int64 num",
    "Location": "1 uint64 id, 4 repeated Line line",
    "Line": "1 uint64 function_id, 2 int64 line",
    "Function": "1 uint64 id, 2 int64 name, 3 int64 system_name, 4 int64 filename",
}
"""The written fields of each message, as ``number [repeated] type name``."""


def profile_message() -> Any:  # noqa: ANN401  the class is made at run time
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(
        name="profile.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _SCHEMA.items():
        message = file.message_type.add(name=name)
        for words in fields.split(", "):
            number, *label, kind, field_name = words.split()
            field = message.field.add(name=field_name, number=int(number))
            field.label = field.LABEL_REPEATED if label else field.LABEL_OPTIONAL
            if kind in _SCHEMA:
                field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Profile"))()


def pprof(reader: RunReader, selection: Selection) -> bytes:
    phases, profile, info = PhaseIndex(reader), _Profile(), reader.info
    string, message = profile.string, profile.message
    for name, unit in (("samples", "count"), ("time", "nanoseconds")):
        message.sample_type.add(type=string(name), unit=string(unit))
    message.default_sample_type = string("time")
    message.period_type.type, message.period_type.unit = string("time"), string("nanoseconds")
    message.period = SECOND_NS // int(info.options.get("rate_hz") or RECORDING.full_rate_hz)
    time = selection.time_in(reader)
    message.time_nanos, message.duration_nanos = time.from_ns, time.length_ns
    message.comment.append(string(f"profd run {visible(info.id)}"))
    weights = process_weights(reader, take_lives(reader), selection.time)
    for total in selected_totals(reader, selection, phases):
        thread = reader.threads[total.thread]
        process = reader.processes[thread.process]
        leaf_first = [profile.location(frame) for frame in reversed(reader.frames_of(total.stack))]
        sample = message.sample.add(location_id=leaf_first)
        sample.value.extend([total.samples, round(total.duration_ns * weights[process.id])])
        words = {"role": process.role, "thread": thread.name, "phase": phases.of_stack(total.stack)}
        for key, word in words.items():
            sample.label.add(key=string(key), str=string(visible(word)))
        numbers = {"pid": process.pid, "rank": process.rank, "worker": process.ordinal}
        for key, number in numbers.items():
            if number is not None:
                sample.label.add(key=string(key), num=number)
    message.string_table.extend(profile.strings)
    # Without a time stamp, so that the same run gives the same bytes.
    return gzip.compress(message.SerializeToString(deterministic=True), mtime=0)


class _Profile:
    """A profile with its strings, functions and locations, each added when it is first named."""

    def __init__(self) -> None:
        self.message = profile_message()
        self.strings = {"": 0}
        self._locations: dict[int, int] = {}
        self._functions: dict[tuple[str, str], int] = {}

    def location(self, frame: FrameRow) -> int:
        if frame.id not in self._locations:
            function = (frame.function, frame.module_path)
            if function not in self._functions:
                number = self._functions[function] = len(self._functions) + 1
                name, file = (self.string(visible(text)) for text in function)
                self.message.function.add(id=number, name=name, system_name=name, filename=file)
            number = self._locations[frame.id] = len(self._locations) + 1
            location = self.message.location.add(id=number)
            location.line.add(function_id=self._functions[function], line=frame.line)
        return self._locations[frame.id]

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))
