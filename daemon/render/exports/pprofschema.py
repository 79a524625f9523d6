"""The messages of pprof's published schema, ``perftools.profiles``, made of descriptors when they are needed.

Built here rather than generated: a generated module is bound to the protobuf runtime that it was generated for.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "perftools.profiles"
_SCHEMA = {
    "Profile": (
        "1 repeated ValueType sample_type, 2 repeated Sample sample, 3 repeated Mapping mapping, "
        "4 repeated Location location, 5 repeated Function function, 6 repeated string string_table, "
        "7 int64 drop_frames, 8 int64 keep_frames, 9 int64 time_nanos, 10 int64 duration_nanos, "
        "11 ValueType period_type, 12 int64 period, 13 repeated int64 comment, 14 int64 default_sample_type"
    ),
    "ValueType": "1 int64 type, 2 int64 unit",
    "Sample": "1 repeated uint64 location_id, 2 repeated int64 value, 3 repeated Label label",
    "Label": "1 int64 key, 2 int64 str, 3 int64 num, 4 int64 num_unit",
    "Mapping": (
        "1 uint64 id, 2 uint64 memory_start, 3 uint64 memory_limit, 4 uint64 file_offset, 5 int64 filename, "
        "6 int64 build_id, 7 bool has_functions, 8 bool has_filenames, 9 bool has_line_numbers"
    ),
    "Location": "1 uint64 id, 2 uint64 mapping_id, 3 uint64 address, 4 repeated Line line, 5 bool is_folded",
    "Line": "1 uint64 function_id, 2 int64 line",
    "Function": "1 uint64 id, 2 int64 name, 3 int64 system_name, 4 int64 filename, 5 int64 start_line",
}
"""Message → its fields, as ``number [repeated] type name``."""


def profile_message() -> Any:  # noqa: ANN401  the class is made at run time
    """Return an empty Profile."""
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _SCHEMA.items():
        message = file.message_type.add(name=name)
        for words in fields.split(", "):
            _add_field(message, words.split())
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Profile"))()


def _add_field(message: descriptor_pb2.DescriptorProto, words: list[str]) -> None:
    """Add the field that the words of its line describe."""
    number, *label, kind, name = words
    field = message.field.add(name=name, number=int(number))
    field.label = field.LABEL_REPEATED if label else field.LABEL_OPTIONAL
    if kind in _SCHEMA:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    else:
        field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
