"""A cache of what is known of words, which holds no long ones."""

from backend.word_cache import word_cache


def test_short_words_are_read_once_and_long_ones_each_time():
    """A request may bring words of 100 kB; thousands of them stayed."""
    read = list[str]()

    @word_cache(10)
    def first_letter(word: str) -> str:
        read.append(word)
        return word[0]

    assert ["a", "a", "b", "b"] == [first_letter(word) for word in ("ab", "ab", "b" * 1000, "b" * 1000)]
    assert ["ab", "b" * 1000, "b" * 1000] == read
