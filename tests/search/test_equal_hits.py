"""Of equal chunks one is kept, and it names the files of the others."""

from backend.search.records import ChunkContent, Ranked
from backend.search.retrieval import without_equal


def test_equal_chunks_are_one() -> None:
    """Only the same place with the same text of files with the same bytes is equal."""
    contents = [
        ChunkContent(1, "file-1", "sha-a", 0, 9, "text"),
        ChunkContent(2, "file-2", "sha-a", 0, 9, "text"),
        ChunkContent(3, "file-2", "sha-a", 9, 18, "text"),  # the next chunk
        ChunkContent(4, "file-3", "sha-b", 0, 9, "text"),  # another file that begins alike
        ChunkContent(5, "file-4", "sha-a", 0, 9, "read otherwise"),
        ChunkContent(6, "file-5", "sha-a", 0, 9, "text"),
    ]
    ranked = [Ranked(chunk_id, 1 / (1 + place)) for place, chunk_id in enumerate((3, 6, 1, 4, 2, 5, 7))]

    kept, duplicates = without_equal(ranked, contents)

    assert [3, 6, 4, 5, 7] == [one.chunk_id for one in kept]  # 7 was deleted meanwhile
    assert {6: ("file-1", "file-2")} == duplicates
