"""The site is looked at in a browser by `scripts/docs`; here, that docs/look.py sees what is wrong with a page."""

import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest

LOOK = Path(__file__).parents[2] / "docs/look.py"
PAGE = """<!DOCTYPE html><html><head><style>{style}</style></head><body>
<p>well</p>{body}<ol><li class="md-search-result__item">PeerDiedError</li></ol></body></html>"""
LONG = "one_name_that_is_long_and_without_a_blank" * 2
#: What is wrong, and what is said of it: its style, its body, and where it is seen.
WRONG = {
    "it is wider than the screen": ("div { width: 600px }", "<div>wide</div>", (375,)),
    "no picture: .*none.png": ("", '<img src="none.png">', (375, 1280)),
    "cut off: x+": (
        ".beside { width: 200px } code { display: block; overflow: auto; white-space: pre }",
        f'<div class="beside"><code>{"x" * 80}</code></div>',
        (375, 1280),
    ),
    "a table is cut off: y+": (
        ".md-typeset__scrollwrap { width: 200px; overflow: auto }",
        f'<div class="md-typeset__scrollwrap"><table><tr><td>{"y" * 80}</td></tr></table></div>',
        (1280,),
    ),
    f"broken: {LONG}": (
        "table { width: 200px; table-layout: fixed } code { word-break: break-all }",
        f"<table><tr><td><code>{LONG}</code></td></tr></table>",
        (375, 1280),
    ),
}


def looked_at(folder, monkeypatch, capsys):
    """Return the exit code, and what is said of a site."""
    look = runpy.run_path(str(LOOK))
    if not any(map(shutil.which, look["BROWSERS"])):
        pytest.skip("there is no browser here (Chromium)")
    monkeypatch.setattr(sys, "argv", ["look.py", str(folder)])
    return look["main"](), capsys.readouterr().out


def test_what_is_wrong_is_seen_on_each_width_and_in_each_scheme(tmp_path, monkeypatch, capsys):
    for number, (style, body, _) in enumerate(WRONG.values()):
        (tmp_path / f"page{number}.html").write_text(PAGE.format(style=style, body=body))
    (tmp_path / "index.html").write_text(PAGE.format(style="", body=""))
    code, said = looked_at(tmp_path, monkeypatch, capsys)
    assert code == 1
    seen = said.splitlines()
    for number, (words, (_, _, widths)) in enumerate(WRONG.items()):
        for width in widths:
            for scheme in ("default", "slate"):
                wanted = rf".*page{number}.html at {width}, {scheme}: {words}"
                assert sum(re.fullmatch(wanted, line) is not None for line in seen) == 1, said
    assert len(seen) == 2 * sum(len(widths) for _, _, widths in WRONG.values()), said


def test_a_site_that_is_well_has_nothing_said_of_it_but_what_the_search_finds(tmp_path, monkeypatch, capsys):
    (tmp_path / "index.html").write_text(PAGE.format(style="", body="<code>fine</code>"))
    assert looked_at(tmp_path, monkeypatch, capsys) == (0, "1 pages look well, and the search finds something\n")
    (tmp_path / "index.html").write_text("<!DOCTYPE html><p>no search")
    code, said = looked_at(tmp_path, monkeypatch, capsys)
    assert (code, said) == (1, "the search finds nothing\n")


FRONT = """<div class="front"><p>arrays as in torch.distributed<p>pip install<p>rankwise run -n 2
<p>init_process_group() all_reduce() destroy_process_group()<p>rankwise 1 <p>Open MPI 2.2x <p>torch's gloo 220x
<p{style}>SomeError: rank 2 called all_reduce() at program.py:6</div>"""


def test_a_first_screen_that_says_what_how_and_how_fast_is_well(tmp_path, monkeypatch, capsys):
    (tmp_path / "index.html").write_text(PAGE.format(style="", body=FRONT.format(style="")))
    assert looked_at(tmp_path, monkeypatch, capsys) == (0, "1 pages look well, and the search finds something\n")


@pytest.mark.parametrize(
    "style",
    [
        "margin-top: 900px",  # below the screen
        "visibility: hidden",
        'position: fixed; top: 0; z-index: -1"><b style="position: fixed; inset: 0; background: red"></b><i class="',
    ],
)
def test_what_is_not_on_the_first_screen_is_missed(style, tmp_path, monkeypatch, capsys):
    (tmp_path / "index.html").write_text(PAGE.format(style="", body=FRONT.format(style=f' style="{style}"')))
    code, said = looked_at(tmp_path, monkeypatch, capsys)
    assert code == 1
    for width in (375, 1280):
        assert f"on the first screen at {width}, default: it does not say what an error says" in said
