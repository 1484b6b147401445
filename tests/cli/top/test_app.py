"""The live view under textual's pilot: every key, any size, a head that goes, a large
cluster."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("textual")

from corral.cli.top import key_bindings
from corral.cli.top.app import Top
from corral.cli.top.canvas import Canvas
from corral.cli.top.screens import Confirm, JobScreen
from corral.domain.errors import Forbidden
from tests.cli.top.town import Town
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from textual.pilot import Pilot


def look(app: Top) -> list[str]:
    """What the terminal shows, line by line."""
    lines = []
    for canvas in app.screen.query(Canvas):
        if canvas.display:
            lines += [
                canvas.render_line(y).text.rstrip() for y in range(canvas.size.height)
            ]
    return lines


async def until(pilot: "Pilot[None]", met: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not met():
            await pilot.pause(0.01)

    await asyncio.wait_for(wait(), PATIENCE_SECONDS)


def play(
    town: Town,
    story: Callable[[Top, "Pilot[None]"], Awaitable[None]],
    size: tuple[int, int] = (80, 24),
) -> None:
    async def run() -> None:
        app = Top(town)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.feed.known.status is not None)
            await pilot.pause()
            await story(app, pilot)

    asyncio.run(run())


def test_the_three_tables_are_a_key_away() -> None:
    async def story(app: Top, pilot: "Pilot[None]") -> None:
        assert "8/8" in "".join(look(app))
        for key, title in (("2", "JOB"), ("3", "WHERE OR WHY"), ("1", "NOTE")):
            await pilot.press(key)
            assert title in look(app)[3]
        for title in ("JOB", "WHERE OR WHY", "NOTE"):
            await pilot.press("tab")
            assert title in look(app)[3]
        assert "1/30 nodes by name" in look(app)[-1]

    play(Town.of(30, 40, running=9), story)


def test_rows_are_walked_through_by_line_page_and_end() -> None:
    async def story(app: Top, pilot: "Pilot[None]") -> None:
        for pressed, place in (
            (["down", "j"], 2),
            (["up", "k", "k"], 0),
            (["pagedown"], 19),
            (["pagedown", "pageup"], 19),
            (["end"], 99),
            (["home"], 0),
            (["G"], 99),
            (["g"], 0),
        ):
            await pilot.press(*pressed)
            assert app.table.cursor == place, pressed
        await pilot.press("end")
        assert any(line.startswith("n99 ") for line in look(app))
        assert not any(line.startswith("n0 ") for line in look(app))

    play(Town.of(100, 0), story)


def test_a_click_chooses_and_the_wheel_moves() -> None:
    async def story(app: Top, pilot: "Pilot[None]") -> None:
        await pilot.click("#table", offset=(5, 4))
        assert app.table.cursor == 3
        await pilot.click("#table", offset=(5, 0))
        assert app.table.cursor == 3, "titles are no row"
        app.on_mouse_scroll_down()
        assert app.table.cursor == 6
        app.on_mouse_scroll_up()
        assert app.table.cursor == 3

    play(Town.of(100, 0), story)


def test_sorting_goes_from_column_to_column_and_may_be_turned() -> None:
    async def story(app: Top, pilot: "Pilot[None]") -> None:
        assert "▲NODE" in look(app)[3]
        await pilot.press("s", "s")
        assert "▼USED" in look(app)[3]
        await pilot.press("r")
        assert "▲USED" in look(app)[3]

    play(Town.of(3, 0), story)


def test_typing_filters_nodes_here_and_jobs_at_the_head() -> None:
    town = Town.of(30, 40, running=9)

    async def story(app: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("slash", "n", "2", "9")
        assert [row.key for row in app.table.rows] == ["n29"]
        await pilot.press("enter")
        await pilot.press("s")
        assert app.table.by == "trouble", "keys are the table's again"
        await pilot.press("escape")
        assert len(app.table.rows) == 30
        await pilot.press("3", "slash", *"train-39")
        await until(pilot, lambda: [row.key for row in app.table.rows] == ["j39"])
        assert "with 'train-39'" in look(app)[-1]
        assert town.wants[-1]["text"] == "train-39"
        await pilot.press("q")
        assert app.is_running, "a letter that is typed is no key"
        await pilot.press("escape")
        await until(pilot, lambda: len(app.table.rows) == 40)
        await pilot.press("1", "slash", "n", "2", "tab", "s")
        assert (app.shown, app.table.text, app.table.by) == ("gpus", "", "busy")
        assert app.tables["nodes"].text == "n2"

    play(town, story)


def test_which_jobs_are_listed_is_chosen_by_a_key() -> None:
    town = Town.of(3, 10, running=4)

    async def story(app: Top, pilot: "Pilot[None]") -> None:
        for which, count in (("on nodes", 4), ("waiting", 6), ("over", 0), ("all", 10)):
            await pilot.press("f")
            await until(pilot, lambda count=count: len(app.table.rows) == count)  # type: ignore[misc]
            assert f"{count} {which} jobs" in look(app)[-1]

    play(town, story)


def test_of_100_000_jobs_a_page_is_asked_for_and_further_ones_near_its_end() -> None:
    town = Town.of(3, 0)
    few = Town.of(1, 1_500, running=1_500)
    town.listed = few.listed

    async def story(app: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("3")
        await until(pilot, lambda: len(app.table.rows) == 100)
        assert "1/100+" in look(app)[-1]
        await pilot.press("end")
        await until(pilot, lambda: len(app.table.rows) == 200)
        assert app.table.cursor == 99, "where one was"
        while len(app.table.rows) < 1_000:
            before = len(app.table.rows)
            await pilot.press("end")
            await until(pilot, lambda before=before: len(app.table.rows) > before)  # type: ignore[misc]
        await pilot.press("end")
        assert (
            "the first 1000 are listed; others are found with / and f" in look(app)[2]
        )
        assert max(want["limit"] for want in town.wants) == 1_001

    play(town, story)


def test_enter_goes_from_a_node_to_its_gpus_to_a_job_and_back() -> None:
    async def story(app: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("down", "enter")
        assert {row.node for row in app.table.rows} == {"n1"}, "and not those of n10"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, JobScreen))
        await until(pilot, lambda: "train-8 j8  RUNNING" in look(app))
        await until(pilot, lambda: "two" in look(app))
        await pilot.press("tab", "3", "s", "slash")
        assert app.shown == "gpus", "keys of the tables do nothing here"
        await pilot.press("escape")
        assert "JOB" in look(app)[3]
        await pilot.press("end", "end")
        await pilot.press("3", "enter")
        await until(pilot, lambda: isinstance(app.screen, JobScreen))

    play(Town.of(12, 40, running=20), story)


def test_a_gpu_that_is_free_opens_nothing() -> None:
    async def story(app: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("2", "end", "enter", "c")
        assert not isinstance(app.screen, JobScreen | Confirm)

    play(Town.of(2, 0), story)


@pytest.mark.parametrize("answer", ["n", "escape", "enter", "q"])
def test_a_cancel_is_asked_about_and_only_y_agrees(answer: str) -> None:
    town = Town.of(2, 3, running=3)

    async def story(app: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("3", "c")
        assert any("cancel train-0 (j0)?" in line for line in look(app))
        await pilot.press(answer)
        assert not isinstance(app.screen, Confirm)
        assert app.is_running
        assert town.cancelled == []
        await pilot.press("down", "c", "y")
        await until(pilot, lambda: town.cancelled == ["j1"])
        await until(pilot, lambda: "train-1 (j1) is being cancelled" in look(app)[2])

    play(town, story)


def test_a_cancel_that_is_refused_says_so_also_from_a_jobs_page() -> None:
    town = Town.of(2, 3, running=3)
    town.refusal = Forbidden("train-0 is another's", hint="ask an operator")

    async def story(app: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("3", "enter")
        await until(pilot, lambda: "train-0 j0  RUNNING" in look(app))
        await pilot.press("c", "y")
        await until(pilot, lambda: app.said == "train-0 is another's; ask an operator")
        await pilot.press("escape")
        assert "train-0 is another's; ask an operator" in look(app)[2]

    play(town, story)


def test_the_help_names_every_key_and_every_key_of_it_is_bound() -> None:
    async def story(app: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("question_mark")
        assert len(app.screen_stack) == 2
        told = "\n".join(look(app))
        for key in key_bindings.TABLES:
            assert key.help in told
        assert all(len(line) <= 80 for line in look(app))
        await pilot.press("escape")
        assert len(app.screen_stack) == 1
        bound = set(app._bindings.key_to_bindings)
        assert {
            one for key in key_bindings.TABLES for one in key.keys.split(",")
        } <= bound

    play(Town.of(1, 0), story)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_a_key_ends_it(key: str) -> None:
    async def story(app: Top, pilot: "Pilot[None]") -> None:
        await pilot.press(key)
        await pilot.pause()
        assert not app.is_running

    play(Town.of(1, 0), story)


def test_a_head_that_is_lost_is_told_and_comes_back_by_itself() -> None:
    town = Town.of(3, 5, running=2)

    async def story(app: Top, pilot: "Pilot[None]") -> None:
        town.away()
        await until(pilot, lambda: "no answer for" in look(app)[2])
        assert "no head answers there" in look(app)[2]
        assert any(line.startswith("n2 ") for line in look(app)), "what was known stays"
        await pilot.press("3", "down")
        assert app.table.cursor == 1, "and can be walked through"
        town.back()
        town.nodes = town.nodes[:2]
        await until(pilot, lambda: "no answer" not in look(app)[2])
        await pilot.press("1")
        assert not any(line.startswith("n2 ") for line in look(app))

    play(town, story)


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 60), (12, 5)])
def test_any_size_is_filled_and_nothing_is_wider(size: tuple[int, int]) -> None:
    async def story(app: Top, pilot: "Pilot[None]") -> None:
        for key in ("1", "2", "3"):
            await pilot.press(key)
            assert all(len(line) <= size[0] for line in look(app))
            assert len(look(app)) == size[1]

    play(Town.of(30, 40, running=20), story, size)


def test_a_terminal_that_grows_and_shrinks_is_followed() -> None:
    async def story(app: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("end")
        for width, height in ((200, 50), (40, 8), (100, 30)):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            assert len(look(app)) == height
            assert any(line.startswith("n99 ") for line in look(app)), (
                "the chosen row is in sight"
            )

    play(Town.of(100, 0), story)


def test_a_thousand_nodes_are_shown_sorted_and_filtered() -> None:
    town = Town.of(1_000, 100, running=100)

    async def story(app: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("end")
        assert any(line.startswith("n999 ") for line in look(app))
        await pilot.press("2")
        assert "1/8000 GPUs" in look(app)[-1]
        await pilot.press("s", "end", "slash", *"n777:")
        assert len(app.table.rows) == 8

    play(town, story)


def test_rows_are_made_anew_only_when_there_are_new_answers() -> None:
    town = Town.of(3, 5, running=2)

    async def story(app: Top, pilot: "Pilot[None]") -> None:
        for key in ("1", "2"):
            await pilot.press(key)
            made = app.table.given
            app.renew()
            assert app.table.given is made
            before = app.feed.known.status
            town.number += 1
            app.feed.hurry()
            await until(
                pilot,
                lambda before=before: app.feed.known.status is not before,  # type: ignore[misc]
            )
            await until(pilot, lambda made=made: app.table.given is not made)  # type: ignore[misc]

    play(town, story)


def test_without_colours_the_same_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    async def story(app: Top, pilot: "Pilot[None]") -> None:
        await pilot.pause()
        seen.append([line for line in look(app) if "://" not in line])
        app.exit()

    play(Town.of(3, 5, running=2), story)
    monkeypatch.setenv("NO_COLOR", "1")
    play(Town.of(3, 5, running=2), story)
    assert seen[0] == seen[1]


def test_nodes_and_jobs_are_shown_together_where_there_is_room_and_not_elsewhere() -> (
    None
):
    async def story(app: Top, pilot: "Pilot[None]") -> None:
        lines = look(app)
        assert "NOTE" in lines[3]
        second = next(at for at, line in enumerate(lines) if "WHERE OR WHY" in line)
        assert second == 3 + 1 + 3 + 1  # below three nodes and an empty line
        await pilot.press("3")
        lines = look(app)
        assert "WHERE OR WHY" in lines[3]
        assert any("NOTE" in line for line in lines[4:])
        await pilot.resize_terminal(80, 12)
        await pilot.pause()
        assert not any("NOTE" in line for line in look(app)[4:])
        await pilot.press("2")
        assert not any("WHERE OR WHY" in line for line in look(app))

    play(Town.of(3, 5, running=2), story, (100, 40))
