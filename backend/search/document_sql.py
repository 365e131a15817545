"""Stored documents as rows: the same queries for SQLite and PostgreSQL. What one writes the other could read."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from backend.search.corrected_answer import compared, corrected_answer, values_of
from backend.search.records import (
    DocumentChange,
    DocumentQuery,
    DocumentRow,
    DocumentSort,
    FileRecord,
    Lesson,
    ListRange,
    Position,
    StoredDocument,
)
from backend.text.patterns.pattern import plain_tax_id

PAST_S = 86_400  # so long a deleted row's position is known, to whoever goes on behind it
Row = Sequence[Any]
FILE_COLUMNS = "f.id, f.owner, f.name, f.size_bytes, f.sha256, f.purpose, f.created_s, f.expires_s"
_FILE_WIDTH = len(FILE_COLUMNS.split(","))
_SELECT = (
    f"SELECT {FILE_COLUMNS}, d.revision, d.updated_s, d.answer, d.changes FROM documents d "
    "JOIN files f ON f.id = d.file_id LEFT JOIN document_values v ON v.file_id = d.file_id AND v.position = 0"
)
FIND = f"{_SELECT} WHERE d.owner = $1 AND d.file_id = $2"
CONTENT = "SELECT content FROM documents WHERE file_id = $1"
INSERT = (
    "INSERT INTO documents (file_id, owner, sha256, created_s, state, revision, updated_s, answer, changes, "
    "usage_bytes, content) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
)
# A state of later than the one that was read is not written over; what is read stays, and so do its bytes.
REPLACE = (
    "UPDATE documents SET state = $3, revision = $4, updated_s = $5, changes = $6, "
    "usage_bytes = length(answer) + length(content) + $7 WHERE file_id = $1 AND revision = $2 RETURNING file_id"
)
FORGET = ("DELETE FROM document_values WHERE file_id = $1", "DELETE FROM document_lessons WHERE file_id = $1")
VALUE = (
    "INSERT INTO document_values (file_id, position, owner, kind, supplier, supplier_tax_id, number, date, due_date, "
    "base, total) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
)
LESSON = (
    "INSERT INTO document_lessons (file_id, position, key, owner, lesson, confirmed_s) VALUES ($1, $2, $3, $4, $5, $6)"
)
_LEAST: Mapping[DocumentSort, str | float] = {  # what sorts where a document has no such value
    "date": "",
    "due_date": "",
    "supplier": "",
    "number": "",
    "base": -9e99,
    "total": -9e99,
}
_SORTED = {"created_at": "d.created_s", **{name: f"coalesce(v.{name}, {least!r})" for name, least in _LEAST.items()}}


def range_query(
    select: str, where: Sequence[str], arguments: list[Any], *, part: ListRange, keys: tuple[str, str]
) -> tuple[str, bool]:
    """The query, with its further arguments appended to ``arguments``; True where its rows come last first.

    With ``before`` alone the part is the one that ends there, so it is read backwards.

    Args:
        select: the query up to WHERE.
        where: conditions of the list itself, over ``arguments`` as $1, $2, ….
        keys: the columns of creation time and id.
    """
    flipped = part.before is not None and part.after is None
    conditions, ascending = list(where), part.order == "asc"
    for position, is_behind in ((part.after, True), (part.before, False)):
        if position is not None:
            arguments += position
            sign = ">" if is_behind == ascending else "<"
            conditions.append(f"({keys[0]}, {keys[1]}) {sign} (${len(arguments) - 1}, ${len(arguments)})")
    arguments.append(part.limit)
    direction = "ASC" if ascending != flipped else "DESC"
    return (
        f"{select} WHERE {' AND '.join(conditions)} ORDER BY {keys[0]} {direction}, {keys[1]} {direction} "
        f"LIMIT ${len(arguments)}"
    ), flipped


class PackedDocument(NamedTuple):
    """A document's row, made before the transaction that writes it: packing a long one takes milliseconds."""

    row: DocumentRow
    answer: bytes
    changes: bytes
    content: bytes

    def insert(self) -> list[Any]:
        """The arguments of `INSERT`."""
        stored = self.row.stored
        file, usage_bytes = stored.file, len(self.answer) + len(self.changes) + len(self.content)
        head = [file.id, file.owner, file.sha256, file.created_s, stored.state, stored.revision, stored.updated_s]
        return [*head, self.answer, self.changes, usage_bytes, self.content]

    def replace(self) -> list[Any]:
        """The arguments of `REPLACE`: in place of the revision before."""
        stored = self.row.stored
        head = [stored.id, stored.revision - 1, stored.state, stored.revision, stored.updated_s]
        return [*head, self.changes, len(self.changes)]

    def found_by(self) -> list[tuple[str, list[Any]]]:
        """The queries that write values and lessons, with their arguments."""
        stored = self.row.stored
        values = [
            (VALUE, [stored.id, position, stored.owner, *_columns(one)]) for position, one in enumerate(self.row.values)
        ]
        lessons = [
            (LESSON, [stored.id, one.document, key, stored.owner, _lesson_text(one), one.confirmed_s])
            for one in self.row.lessons
            for key in dict.fromkeys(one.keys)
        ]
        return [*values, *lessons]


def _columns(values: Any) -> list[Any]:
    names = ("kind", "supplier", "supplier_tax_id", "number", "date", "due_date", "base", "total")
    return [getattr(values, name) for name in names]


def _lesson_text(lesson: Lesson) -> str:
    return orjson.dumps({"keys": lesson.keys, "lesson": lesson.lesson}).decode()


def pack(row: DocumentRow, content: Mapping[str, Any] | None = None) -> PackedDocument:
    """The row as it is written; without content to `replace` one, of which answer and content stay."""
    answer = b"" if content is None else zlib.compress(orjson.dumps(row.stored.answer))
    packed = b"" if content is None else zlib.compress(orjson.dumps(content))
    changes = [
        [change.revision, change.action, change.document, change.at_s, change.by, change.fields]
        for change in row.stored.changes
    ]
    return PackedDocument(row, answer, zlib.compress(orjson.dumps(changes)), packed)


_LISTED_BYTES = 2**24  # of JSON that one list holds: as objects it takes ten times as much


def unpacked_content(packed: bytes) -> dict[str, Any]:
    """`DOCUMENT_CONTENT`. Raises: zlib.error, ValueError for what was not written so."""
    content: dict[str, Any] = orjson.loads(zlib.decompress(packed))
    return content


def stored_document(row: Row) -> StoredDocument:
    """A row of `FIND`. Raises: as `unpacked_content`."""
    return next(stored_documents([row]))


def stored_documents(rows: Sequence[Row]) -> Iterator[StoredDocument]:
    """Rows of `listed`, up to the one with which they are too large. Raises: as `unpacked_content`."""
    left_bytes = _LISTED_BYTES
    for row in rows:
        if left_bytes <= 0:
            return
        revision, updated_s, *packed = row[_FILE_WIDTH:]
        answer, changes = map(zlib.decompress, packed)
        left_bytes -= len(answer) + len(changes)
        made = tuple(DocumentChange(*change) for change in orjson.loads(changes))
        yield StoredDocument(FileRecord(*row[:_FILE_WIDTH]), revision, updated_s, orjson.loads(answer), made)


def listed(owner: str, query: DocumentQuery, part: ListRange) -> tuple[str, list[Any], bool]:
    """The query of a part of the list, its arguments, and whether its rows come last first."""
    arguments: list[Any] = [owner]
    where = ["d.owner = $1", *_conditions(query, arguments)]
    text, flipped = range_query(_SELECT, where, arguments, part=part, keys=(_SORTED[query.sort], "d.file_id"))
    return text, arguments, flipped


def position(sort: DocumentSort) -> str:
    """The query of where a document of an owner ($1) with an id ($2) stands in a sorted list."""
    return (
        f"SELECT {_SORTED[sort]}, d.file_id FROM documents d LEFT JOIN document_values v ON v.file_id = d.file_id "
        "AND v.position = 0 WHERE d.owner = $1 AND d.file_id = $2"
    )


def position_of(stored: StoredDocument, sort: DocumentSort) -> Position:
    """The same of a document at hand, also one that has been deleted meanwhile."""
    if sort == "created_at":
        return Position(stored.file.created_s, stored.id)
    key = getattr(values_of(corrected_answer(stored))[0], sort)
    return Position(_LEAST[sort] if key is None else key, stored.id)


def is_key(key: Any, sort: DocumentSort) -> bool:
    """Whether a list that is sorted by a field can be compared with this."""
    return type(key) is type(_LEAST[sort])


def _conditions(query: DocumentQuery, arguments: list[Any]) -> list[str]:
    def value(argument: Any) -> str:
        arguments.append(argument)
        return f"${len(arguments)}"

    conditions = [] if query.state is None else [f"d.state = {value(query.state)}"]
    if query.ids is not None:
        wanted = ", ".join(value(file_id) for file_id in query.ids) or "NULL"
        conditions.append(f"d.file_id IN ({wanted})")
    of_values = [f"m.{column} {sign} {value(wanted)}" for column, sign, wanted in compared(query)]
    if query.supplier is not None:
        escaped = query.supplier.casefold().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        part = f"m.supplier LIKE {value(f'%{escaped}%')} ESCAPE '\\'"
        of_values.append(f"({part} OR m.supplier_tax_id = {value(plain_tax_id(query.supplier))})")
    if of_values:
        of_values.insert(0, "m.file_id = d.file_id")
        conditions.append(f"EXISTS (SELECT 1 FROM document_values m WHERE {' AND '.join(of_values)})")
    return conditions


def duplicates(count: int) -> str:
    """The query of those among ``count`` documents of an owner ($1, then their ids) that there is another of."""
    ids = ", ".join(f"${number}" for number in range(2, count + 2))
    return (
        "SELECT a.file_id, a.position, min(b.file_id), count(*) FROM document_values a JOIN document_values b "
        "ON b.owner = a.owner AND b.supplier_tax_id = a.supplier_tax_id AND b.number = a.number AND b.total = a.total "
        "AND (b.file_id <> a.file_id OR b.position <> a.position) "
        f"WHERE a.owner = $1 AND a.file_id IN ({ids}) GROUP BY a.file_id, a.position UNION ALL "
        "SELECT a.file_id, NULL, min(b.file_id), count(*) FROM documents a JOIN documents b "
        "ON b.owner = a.owner AND b.sha256 = a.sha256 AND b.file_id <> a.file_id "
        f"WHERE a.owner = $1 AND a.file_id IN ({ids}) GROUP BY a.file_id"
    )


def lessons(count: int) -> str:
    """The query of an owner's ($1) newest lessons ($2: how many) by ``count`` keys."""
    keys = ", ".join(f"${number}" for number in range(3, count + 3))
    return (
        "SELECT DISTINCT file_id, position, lesson, confirmed_s FROM document_lessons "
        f"WHERE owner = $1 AND key IN ({keys}) ORDER BY confirmed_s DESC, file_id, position LIMIT $2"
    )


LESSONS_OF = (
    "SELECT DISTINCT file_id, position, lesson, confirmed_s FROM document_lessons WHERE file_id = $1 ORDER BY position"
)


def lesson(row: Row) -> Lesson:
    kept = orjson.loads(row[2])
    return Lesson(row[0], row[1], tuple(kept["keys"]), kept["lesson"], row[3])
