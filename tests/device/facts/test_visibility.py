"""CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, interpreted as by the driver."""

import pytest

from backend.device.facts.machine import visible_cards
from backend.device.records import Card

OLD = Card("GPU-aaaa1111", "old", 0, total_bytes=24, capability=(8, 9))
NEW = Card("GPU-aaaa2222", "new", 1, total_bytes=96, capability=(12, 0))
TWIN = Card("GPU-bbbb3333", "new", 2, total_bytes=96, capability=(12, 0))
PCI = (OLD, NEW, TWIN)
SLICES = tuple(
    Card(f"MIG-cccc{number}", "slice", 3, mig="1g.10gb", parent_uuid="GPU-dddd", capability=(9, 0)) for number in (1, 2)
)


@pytest.mark.parametrize(
    ("visible", "order", "expected"),
    [
        pytest.param(None, "PCI_BUS_ID", (OLD, NEW, TWIN), id="all-by-bus"),
        pytest.param(None, None, (NEW, OLD, TWIN), id="all-fastest-first"),
        pytest.param(None, "FASTEST_FIRST", (NEW, OLD, TWIN), id="the-default-by-name"),
        pytest.param("0", "PCI_BUS_ID", (OLD,), id="first-by-bus"),
        pytest.param("0", None, (NEW,), id="first-is-the-fastest"),
        pytest.param("2,0", "PCI_BUS_ID", (TWIN, OLD), id="in-the-order-of-the-list"),
        pytest.param(" 1 , 2 ", "PCI_BUS_ID", (NEW, TWIN), id="with-spaces"),
        pytest.param("1gpu", "PCI_BUS_ID", (NEW,), id="as-strtoul-reads"),
        pytest.param("1,-1,0", "PCI_BUS_ID", (NEW,), id="ends-at-minus-one"),
        pytest.param("1,9,0", "PCI_BUS_ID", (NEW,), id="ends-at-the-first-unknown"),
        pytest.param("", "PCI_BUS_ID", (), id="empty-hides-all"),
        pytest.param("-1", "PCI_BUS_ID", (), id="minus-one-hides-all"),
        pytest.param("none", "PCI_BUS_ID", (), id="a-word-hides-all"),
        pytest.param("0,0", "PCI_BUS_ID", (), id="repeated-hides-all"),
        pytest.param("GPU-bbbb3333", None, (TWIN,), id="by-uuid"),
        pytest.param("GPU-bbbb,GPU-aaaa1", None, (TWIN, OLD), id="by-unique-beginnings"),
        pytest.param("GPU-aaaa", None, (), id="an-ambiguous-beginning"),
        pytest.param("GPU-bbbb,0", None, (TWIN,), id="kinds-are-not-mixed"),
        pytest.param("GPU-ffff", None, (), id="a-card-of-another-machine"),
    ],
)
def test_visible_cards(visible, order, expected):
    """The cards in torch's order."""
    assert expected == visible_cards(PCI, visible, order)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        pytest.param(None, (OLD, *SLICES), id="all"),
        pytest.param("1", SLICES, id="the-card-by-number"),
        pytest.param("MIG-cccc2", (SLICES[1],), id="one-slice"),
        pytest.param("GPU-dddd", SLICES, id="the-card-by-uuid"),
        pytest.param("MIG-GPU-dddd/1/0", SLICES, id="the-old-form-names-the-card"),
    ],
)
def test_slices(visible, expected):
    """Slices are selected with their card, or one by one."""
    assert expected == visible_cards((OLD, *SLICES), visible, "PCI_BUS_ID")
