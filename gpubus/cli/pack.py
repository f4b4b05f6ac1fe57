"""`gpubus pack`: which cards slices of time x multiprocessors would go on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from autoscaler.core.partition_cards import CardArea, Rule, Spot, choose
from autoscaler.core.partitions import PERCENT, TIME, WHOLE_AREA
from gpubus.cli.common import show_all, show_json
from gpubus.cli.exits import Exit
from gpubus.errors import UsageError

MAX_SLICES = 1000
FORM = re.compile(r"(?:(\d{1,4}):)?(\d{1,4})x(\d{1,3})(?:@([A-Za-z0-9_-]{1,63}))?")


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """One slice and where it goes; None = nowhere."""

    share_milli: int
    partition_percent: int
    tag: str | None = None
    spot: Spot | None = None


def pack(
    slices: Annotated[tuple[str, ...], Parameter(negative="")],
    /,
    *,
    cards: int = 1,
    stay: Annotated[bool, Parameter(negative="")] = False,
    output: Annotated[Literal["table", "json"], Parameter(name=["--output", "-o"])] = "table",
    debug: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """Plan slices of time x multiprocessors: which fit on how many empty cards, and where.

    A card is 1000 thousandths of time x 100 % of its multiprocessors, a slice a rectangle in it. The largest chooses
    first, and goes where the least is left over. It is a plan only: the scheduler sells time and memory.
    Exit status 1 when a slice finds no place.

    Try:

    ```
    gpubus pack 4:400x12 2:400x24 2:600x50
    gpubus pack 3:300x50@red 2:400x100 --cards 2 --stay
    ```

    Args:
        slices: [COUNT:]SHARExPERCENT[@TAG]: so many of SHARE thousandths on PERCENT %.
        cards: Empty cards.
        stay: Tags as KubeShare has them: who has a tag goes to the card with that tag, or opens an empty one.
        output: table or json.
        debug: On an error show where in the program it came from.
    """
    del debug  # read by `main`
    if cards < 1:
        raise UsageError(f"--cards {cards}: at least 1")
    wanted = [one for text in slices for one in parsed(text)]
    if not 1 <= len(wanted) <= MAX_SLICES:
        raise UsageError(f"{len(wanted)} slices: from 1 to {MAX_SLICES}")
    found = placed(wanted, cards, stay=stay)
    if output == "json":
        show_json(found)
    else:
        show_all(_told(found, cards))
    return int(Exit.OK if all(one.spot for one in found) else Exit.NO)


def parsed(text: str) -> list[Packed]:
    """`2:400x24@red` as two slices.

    Raises:
        UsageError: another form, or a side out of its bounds.
    """
    match = FORM.fullmatch(text)
    if match is None:
        raise UsageError(f"slice {text!r}: the form is [COUNT:]SHARExPERCENT[@TAG], as 2:400x24")
    count, share, percent = int(match[1] or 1), int(match[2]), int(match[3])
    if not (1 <= share <= TIME and 1 <= percent <= PERCENT):
        raise UsageError(f"slice {text!r}: SHARE is 1..{TIME} thousandths, PERCENT 1..{PERCENT}")
    return [Packed(share_milli=share, partition_percent=percent, tag=match[4])] * count


def placed(wanted: Sequence[Packed], cards: int, *, stay: bool = False) -> list[Packed]:
    """Each slice with its place, largest first."""
    rule: Rule = "stay" if stay else "any"
    areas = [CardArea(uuid=f"card-{number:03d}") for number in range(1, cards + 1)]
    found = []
    for one in sorted(wanted, key=lambda one: (-one.share_milli * one.partition_percent, one.share_milli)):
        spot = choose(areas, one.share_milli, one.partition_percent, affinity=one.tag, rule=rule)
        areas = [_with(area, spot, one.tag) for area in areas]
        found.append(msgspec.structs.replace(one, spot=spot))
    return found


def _with(area: CardArea, spot: Spot | None, tag: str | None) -> CardArea:
    if spot is None or spot.card != area.uuid:
        return area
    affinity = area.affinity | ({tag} if tag else set())
    return msgspec.structs.replace(area, taken=(*area.taken, spot.place), affinity=affinity)


def _told(found: Sequence[Packed], cards: int) -> Iterator[Table | Text]:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("SLICE", "CARD", "TIME", "MULTIPROCESSORS"):
        table.add_column(column)
    for one in found:
        name = f"{one.share_milli} x {one.partition_percent} %{f' @{one.tag}' if one.tag else ''}"
        if one.spot is None:
            table.add_row(name, "no place", "", "")
        else:
            place = one.spot.place
            table.add_row(name, one.spot.card, f"{place.time}..{place.right}", f"{place.unit}..{place.top} %")
    yield table
    sold = sum(one.share_milli * one.partition_percent for one in found if one.spot)
    homeless = sum(one.spot is None for one in found)
    percent = f"{sold * 1000 // (WHOLE_AREA * cards) / 10:g} % of {cards} card{'s' if cards > 1 else ''}"
    yield Text(f"{len(found) - homeless} of {len(found)} placed, {percent}", style="yellow" if homeless else "green")
