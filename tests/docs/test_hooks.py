"""Tables too wide for a telephone become cards there, by docs/hooks.py; docs/look.py looks at what comes of it."""

import runpy
from pathlib import Path

HOOKS = runpy.run_path(str(Path(__file__).parents[2] / "docs/hooks.py"))


def shown(*rows):
    """Return what becomes of a table, the first row of which are its heads."""
    marks = ["th", *["td"] * (len(rows) - 1)]
    lines = ["".join(f"<{mark}>{cell}</{mark}>" for cell in row) for mark, row in zip(marks, rows, strict=True)]
    table = "".join(f"<tr>{line}</tr>" for line in lines)
    return HOOKS["on_page_content"](f"<p>before</p><table>{table}</table><p>after</p>")


def test_a_table_of_long_words_becomes_cards_that_name_their_columns():
    long = f"<code>{'a_name_' * 8}</code>"
    html = shown(("subject", "", "torch <em>too</em>"), ("one", long, "x"), ("two", "", "y"))
    assert html.startswith('<p>before</p><div class="stacked"><table>')
    assert html.endswith("</table></div><p>after</p>")
    assert html.count('<td data-label="subject">') == html.count('<td data-label="torch too">') == 2
    assert html.count("<td>") == 2  # of the column that has no head


def test_a_small_table_and_one_of_figures_stay_tables():
    assert "stacked" not in shown(("a", "b"), ("one", "two"))
    figures = ["1234567.125"] * 9
    assert "stacked" not in shown(["operation", *"bcdefghij"], ["all_reduce", *figures])


def test_names_for_which_there_is_no_room_may_be_broken_between_their_parts():
    name, short = "core/rankwise/calls/check_many_arguments.py", "x" * 9
    html = shown(("file", "what"), (f"<code>{name}</code>", f"and/or<code>{short}</code>"))
    assert "<code>core/<wbr>rankwise/<wbr>calls/<wbr>check_<wbr>many_<wbr>arguments.<wbr>py</code>" in html
    assert f"and/or<code>{short}</code>" in html
    assert "<wbr>" not in shown(("file", "what"), ("<code>core/rankwise/calls/check.py</code>", "and/or"))
