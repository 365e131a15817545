"""Workbooks written by hand: formats of numbers, and what is hostile."""

import pytest

from backend.errors import TooLarge
from backend.files.file_readers import FileReaders
from backend.files.office.number_formats import number_format, shown
from tests.files.office.office_files import S, pages_of, xlsx


@pytest.mark.parametrize(
    ("value", "code", "expected"),
    [
        pytest.param(1284.5, "General", "1284.5", id="general"),
        pytest.param(0.1 + 0.2, "General", "0.3", id="general-rounds"),
        pytest.param(3.0, "General", "3", id="whole"),
        pytest.param(1284.5, "#,##0.00", "1284.50", id="decimals-without-thousands"),
        pytest.param(1284.5, '#,##0.00\\ "€"', "1284.50 €", id="currency-behind"),
        pytest.param(1284.5, "[$$-409]#,##0.00", "$ 1284.50", id="currency-before"),
        pytest.param(-3, "#,##0 [$€-C0A];[Red]\\(#,##0 [$€-C0A]\\)", "-3 €", id="negative"),
        pytest.param(0.21, "0%", "21%", id="percent"),
        pytest.param(45334, "dd/mm/yyyy", "2024-02-12", id="date"),
        pytest.param(45334.5, "m/d/yy h:mm", "2024-02-12 12:00", id="moment"),
        pytest.param(0.75, "h:mm", "18:00", id="time"),
        pytest.param(1.5, "[h]:mm", "36:00", id="duration"),
        pytest.param(1, "yyyy-mm-dd", "1900-01-01", id="first-day"),
        pytest.param(8001, "00000", "08001", id="postal-code"),
        pytest.param(12, '0 "uds"', "12 uds", id="words"),
        pytest.param(1e300, "yyyy", "1e+300", id="no-date"),
        pytest.param(1e308, "[h]:mm", "1e+308", id="no-duration"),
        pytest.param(float("inf"), "General", "inf", id="infinite"),
    ],
)
def test_numbers(value: float, code: str, expected: str):
    """As their format shows them, with a point and dates in ISO 8601."""
    assert expected == shown(value, number_format(code))


@pytest.mark.parametrize(("value", "expected"), [(0, "1904-01-01"), (2_957_003, "9999-12-31"), (2_957_004, "2957004")])
def test_days_since_1904(value: float, expected: str):
    """Workbooks of old Macs count from there, and end as early."""
    assert expected == shown(value, number_format("yyyy-mm-dd"), is_1904=True)


def _row(number: int, *cells: str) -> str:
    return f'<row r="{number}">{"".join(cells)}</row>'


def _c(place: str, text: str) -> str:
    return f'<c r="{place}" t="inlineStr"><is><t>{text}</t></is></c>'


def test_cells_far_apart(readers: FileReaders):
    """Empty rows and columns take no room, whatever the sheet's size; a page is a sheet and has its name."""
    far = _row(1, _c("A1", "uno"), _c("XFD1", "dos")) + _row(1_048_576, _c("A1048576", "tres"))
    with readers.open(xlsx(far, _row(1, _c("A1", "otra")))) as file:
        layer = readers.page_text(file, 1)

        assert ["S1", "S2"] == [file.info.part(number).name for number in (1, 2)]
    assert "uno dos tres" == layer.text
    assert layer.height < 1000
    assert layer.width < 1000


def test_a_formula_without_a_value(readers: FileReaders):
    """Is told of: a program wrote it that does not compute."""
    with readers.open(xlsx(_row(1, _c("A1", "Total"), '<c r="B1"><f>SUM(B2:B3)</f></c>'))) as file:
        assert file.info.metadata["formulas_without_value"].startswith("1:")


def test_a_style_tells_the_format(readers: FileReaders):
    styles = (
        f'<styleSheet {S}><numFmts><numFmt numFmtId="164" formatCode="dd/mm/yyyy"/></numFmts><cellXfs>'
        '<xf numFmtId="0"/><xf numFmtId="164"/></cellXfs></styleSheet>'
    )
    (page,) = pages_of(readers, xlsx(_row(1, '<c r="A1" s="1"><v>45334</v></c>'), more={"xl/styles.xml": styles}))

    assert "2024-02-12" == page.text


def test_ten_thousand_sheets(readers: FileReaders):
    """Refused by their number, before one is read; an archive of more entries than that by theirs."""
    with pytest.raises(TooLarge, match="sheets: 9900 is over the limit of 200"):
        readers.open(xlsx(*[""] * 9_900))
    with pytest.raises(TooLarge, match="entries of the archive"):
        readers.open(xlsx(*[""] * 10_001))
