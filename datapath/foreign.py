# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reads files from outside, within bounds.

An experiment, the trace of a link or a result folder may come from a stranger, or be damaged.
Its size on the disk says little: a few bytes of Parquet or YAML can stand for gigabytes.  So
every reader here looks at what a file would become before it makes it, and raises Refused.
Files that cannot be opened raise OSError, as `open` does; damaged ones raise ValueError.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datapath.errors import LocalError

if TYPE_CHECKING:
    import pandas as pd

FILE_BYTES_MAX = 32 * 2**20
"""Of a file, unless its reader knows a smaller bound."""

NESTING_MAX = 50
"""Lists and mappings inside each other."""

_JSON_VALUES_MAX = 2_000_000
TABLE_VALUES_MAX = 40_000_000
"""Of a Parquet file: 1 GB of memory as it is read."""

_TABLE_BYTES_MAX = 256 * 2**20
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


class Refused(LocalError, ValueError):
    """A file that is larger than any that is meant; a ValueError, as damaged files raise."""


def is_file(path: Path) -> bool:
    """Whether there is a file; no error for an impossible name or a folder without access."""
    try:
        return path.is_file()
    except OSError:
        return False


def expanded(path: Path) -> Path:
    """With the home folder for a `~` or `~user` at the begin; as it is when there is no such."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def beside(folder: Path, name: str | Path) -> Path:
    """The file that a file in `folder` names: from there on, or from a home folder (expanded())."""
    return folder / expanded(Path(name))


def read_bytes(path: Path, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """The content of a file, of a pipe too; an endless one is read no further than the bound."""
    with path.open("rb") as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise Refused(f"{path}: larger than {bytes_max:,} bytes, the most that is read")
    return content


def read_text(path: Path, bytes_max: int = FILE_BYTES_MAX, *, encoding: str = "utf-8") -> str:
    """The text of a file; UnicodeDecodeError, which is a ValueError, when it is none.

    All kinds of line ends become a line feed.
    """
    text = read_bytes(path, bytes_max).decode(encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path) -> Any:
    """The value of a JSON file; a whole number that no float can hold is infinite."""
    content = read_bytes(path)
    # Each value but the first follows one of these; in strings they count as well.
    values = sum(content.count(sign) for sign in (b",", b"[", b"{"))
    if values > _JSON_VALUES_MAX:
        raise Refused(f"{path}: some {values:,} values; the most is {_JSON_VALUES_MAX:,}")
    too_deep = Refused(f"{path}: nested more than {NESTING_MAX} deep")
    try:
        data = json.loads(content, parse_int=_whole)
    except RecursionError:
        raise too_deep from None
    if _deeper_than(data, NESTING_MAX):
        raise too_deep
    return data


def _whole(digits: str) -> int | float:
    number = float(digits)
    return int(digits) if math.isfinite(number) else number


def _deeper_than(data: Any, levels: int) -> bool:
    """Whether lists and dicts lie in each other deeper than so many levels."""
    level = [data]
    for _ in range(levels + 1):
        level = [
            part
            for whole in level
            if isinstance(whole, (dict, list))
            for part in (whole.values() if isinstance(whole, dict) else whole)
        ]
        if not level:
            return False
    return True


def read_table(path: Path) -> pd.DataFrame:
    """The table of a Parquet file of plain columns.

    Text is read as a dictionary: a value that stands in a million rows is one object.  The
    index that pandas stores as a column is left out.  ValueError when the file is damaged.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with path.open("rb") as stream:
            file = parquet.ParquetFile(stream)
            _check_table(path, file)
            schema = [f for f in file.schema_arrow if not _PANDAS_INDEX.fullmatch(f.name)]
            texts = [f.name for f in schema if _is_text(f.type)]
            file = parquet.ParquetFile(stream, read_dictionary=texts)
            table = file.read([f.name for f in schema], use_threads=False)
        _check_texts(path, [table[name] for name in texts])
        frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    except (pa.ArrowException, OSError, OverflowError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the file could not be opened; pyarrow's own errors have no number
        raise ValueError(f"{path.name}: {error}") from None
    for name in texts:
        frame[name] = frame[name].astype(object)
    return frame


def _check_texts(path: Path, columns: Iterable[Any]) -> None:
    """Refuse text that becomes too long when each row has a copy, which pandas makes."""
    import pyarrow.compute as pc

    length = 0
    for column in columns:
        for part in column.chunks:
            lengths = pc.binary_length(part.dictionary)
            length += pc.sum(pc.take(lengths, part.indices)).as_py() or 0
    if length > _TABLE_BYTES_MAX:
        raise Refused(f"{path}: {length:,} bytes of text; the most is {_TABLE_BYTES_MAX:,}")


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _check_table(path: Path, file: Any) -> None:
    """Refuse a table by its metadata, before a row of it is read."""
    import pyarrow as pa

    about, schema = file.metadata, file.schema_arrow
    values = about.num_rows * about.num_columns
    if values > TABLE_VALUES_MAX:
        raise Refused(f"{path}: {values:,} values; the most is {TABLE_VALUES_MAX:,}")
    unpacked = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    if unpacked > _TABLE_BYTES_MAX:
        raise Refused(f"{path}: {unpacked:,} bytes unpacked; the most is {_TABLE_BYTES_MAX:,}")
    if len(set(schema.names)) != len(schema.names):
        raise ValueError(f"{path}: two columns have one name")
    plain = (
        _is_text(kind)
        or (pa.types.is_primitive(kind) and not isinstance(kind, pa.BaseExtensionType))
        or pa.types.is_null(kind)
        for kind in schema.types
    )
    if not all(plain):
        raise ValueError(f"{path}: a column holds something else than numbers, text or times")
