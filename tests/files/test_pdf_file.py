"""What a PDF says about itself."""

import io

import pikepdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.files.file_readers import FileReaders
from backend.files.pdf_file import iso_date
from tests.files.pdfs import pdf, text


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("D:20250910085407+02'00'", "2025-09-10T08:54:07+02:00", id="in-full"),
        pytest.param("D:20250910085407+02'00", "2025-09-10T08:54:07+02:00", id="of-pdf-2"),
        pytest.param("D:20250910085407-0330", "2025-09-10T08:54:07-03:30", id="without-apostrophes"),
        pytest.param("D:20250910085407-03:30", "2025-09-10T08:54:07-03:30", id="with-a-colon"),
        pytest.param("D:20250910085407+02", "2025-09-10T08:54:07+02:00", id="hours-of-the-zone"),
        pytest.param("D:20250910085407Z", "2025-09-10T08:54:07Z", id="utc"),
        pytest.param("D:20250910085407Z00'00'", "2025-09-10T08:54:07Z", id="utc-as-adobe-writes-it"),
        pytest.param("D:20250910085407", "2025-09-10T08:54:07", id="without-a-zone"),
        pytest.param("20250910085407", "2025-09-10T08:54:07", id="without-a-prefix"),
        pytest.param("D:202509100854", "2025-09-10T08:54:00", id="minutes"),
        pytest.param("D:2025091008", "2025-09-10", id="hours-alone-are-no-time-of-iso-8601"),
        pytest.param("D:20250910", "2025-09-10", id="day"),
        pytest.param("D:202509", "2025-09", id="month"),
        pytest.param("D:2025", "2025", id="year"),
        pytest.param("2024-05-01T10:00:00", "2024-05-01T10:00:00", id="iso-8601"),
        pytest.param("2024-05-01T10:00:00.250+02:00", "2024-05-01T10:00:00.250+02:00", id="iso-8601-in-full"),
        pytest.param("2024-05-01", "2024-05-01", id="iso-8601-day"),
        pytest.param("D:2024-05-01T10:00:00Z", "2024-05-01T10:00:00Z", id="iso-8601-with-a-prefix"),
        pytest.param("1.5.2024", "1.5.2024", id="of-another-form"),
        pytest.param("2024 or so", "2024 or so", id="begins-like-one"),
        pytest.param("D:soon", "D:soon", id="no-date"),
        pytest.param("D:20251310", "D:20251310", id="month-13"),
        pytest.param("D:20250229", "D:20250229", id="no-leap-year"),
        pytest.param("D:20250910256199", "D:20250910256199", id="hour-25"),
        pytest.param("D:20250910085407+99'00'", "D:20250910085407+99'00'", id="zone-99"),
        pytest.param("D:191000101000000", "D:191000101000000", id="the-year-19100-of-old-programs"),
        pytest.param("٢٠٢٥", "٢٠٢٥", id="digits-of-another-script"),
    ],
)
def test_dates(written, expected):
    """ISO 8601 with what the file says; what is no date, or ISO 8601 already, stays as it is."""
    assert expected == iso_date(written)


@given(st.text(alphabet="D:0123456789TZ+-'. ", max_size=30))
def test_any_text_has_an_answer(text):
    """Whatever a file says: no error, and what was made ISO 8601 stays so."""
    assert iso_date(iso_date(text)) == iso_date(text)


def test_half_a_surrogate_pair_in_a_title(readers: FileReaders) -> None:
    """Costs that character; it had the whole file refused."""
    document, target = pikepdf.open(io.BytesIO(pdf(text(b"Invoice")))), io.BytesIO()
    document.docinfo["/Title"] = pikepdf.String(b"\xfe\xff\x00A\xd8\x00\x00B")
    document.docinfo["/Author"] = pikepdf.String("N\u00fa\u00f1ez")
    document.save(target)
    with readers.open(target.getvalue()) as file:
        metadata = file.info.metadata

    assert ("A\ufffdB", "N\u00fa\u00f1ez") == (metadata["title"], metadata["author"])
