"""Tests of tfplace.runs.tables: CSV and Markdown, whole."""

from tfplace.runs.tables import csv_text, markdown_table


def test_csv_leaves_out_what_is_in_no_column_and_quotes_what_it_has_to():
    rows = [{"b": 'say "x"', "a": 1.5, "c": 9}, {"a": None, "b": "1,2"}]
    assert csv_text(("a", "b"), rows) == 'a,b\n1.5,"say ""x"""\n,"1,2"\n'


def test_markdown_aligns_numbers_and_keeps_each_row_in_its_line():
    rows = [("a|b", "1"), ("two\nlines", "10")]
    assert markdown_table(("name", "count"), ("count",), rows) == (
        "| name | count |\n|---|---:|\n| a\\|b | 1 |\n| two lines | 10 |\n"
    )
