import re
from pathlib import Path

import pytest

from lazygnn.errors import GraphError
from lazygnn.tables.diagnosis import Layout, check_quotes, explain, line_of, read_layout
from tests.tables.helpers import write


@pytest.mark.parametrize(
    ("text", "columns", "delimiter"),
    [
        ("a,b\n1,2\n", ("a", "b"), ","),
        ("\ufeffa , b\r\n1,2\r\n", ("a", "b"), ","),
        ("a;b\n1,5;2\n", ("a", "b"), ";"),
        ("a\tb,c\td\n", ("a", "b,c", "d"), "\t"),
        ('"x;y;z",b\n1,2\n', ("x;y;z", "b"), ","),
        ('"say ""hi""",b\n', ('say "hi"', "b"), ","),
        ('"two\nlines",b\n1,2\n', ("two\nlines", "b"), ","),
        ("a\n1\n", ("a",), ","),
    ],
)
def test_columns_and_delimiter_are_in_the_header(
    tmp_path: Path, text: str, columns: tuple[str, ...], delimiter: str
) -> None:
    layout = read_layout(write(tmp_path, text))
    assert (layout.columns, layout.delimiter) == (columns, delimiter)


@pytest.mark.parametrize(("text", "only"), [("a,b", True), ("a,b\r\n", True), ("\na,b\n\n", True), ("a,b\n1,2", False)])
def test_a_header_alone_is_found(tmp_path: Path, text: str, only: bool) -> None:
    assert read_layout(write(tmp_path, text)).is_header_only == only


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"nodes.csv` is empty; give a table with a header"),
        (b"\n \n", r"nodes.csv` is empty"),
        ("a,b\n1,2\n".encode("utf-16"), r"nodes.csv`, line 1: the file is in UTF-16; save it as UTF-8"),
        (b"a,b\n1,\0\n", r"nodes.csv`, line 2: the file holds a null character"),
        (b"a,\xfc\n1,2\n", r"nodes.csv`, line 1, near column 2: b'\\xfc\\n' is not UTF-8; save the file as UTF-8"),
        (b'a,"b\n1,2\n', r"nodes.csv`, line 1: a quote in the header is not closed"),
    ],
)
def test_a_file_without_a_readable_header_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        read_layout(write(tmp_path, content))


def test_a_record_has_the_line_where_it_starts(tmp_path: Path) -> None:
    path = write(tmp_path, '\na,b\n\n"two\nlines",1\r\n5" pipe,2\n\n"x ""y""\n",3\n')
    layout = read_layout(path)
    assert [line_of(path, layout, record) for record in range(4)] == [2, 4, 6, 8]
    with pytest.raises(GraphError, match=r"has changed while it was read"):
        line_of(path, layout, 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2\n3\n", r"line 3: the row has 1 values for 2 columns; the last column is `b`; complete the row"),
        (b"a,b\n1,2,3\n", r"line 2: the row has 3 values for 2 columns"),
        (b'a,b\n"x\ny",1\n2\n', r"line 4: the row has 1 values"),
        (b'a,b\n1,2\n"3,4\n5,6\n', r"line 3: a quote is not closed; close or double it"),
        (b"a,b\n1,2\n\xff,3\n", r"line 3, near column 1: b'\\xff,3\\n' is not UTF-8"),
        (b"a,b\n1," + b"x" * 99 + b"\n", r"line 2: the row has 102 characters, at most 50; shorten it"),
        (b"a,b\n1,2\n", r"cannot be read as CSV \(odd\); write it again"),
    ],
)
def test_the_reason_is_found_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path, content)
    # Arrow meets the same lines later
    layout = Layout(("a", "b"), ",", header_line=1, is_header_only=False)
    assert re.search(message, str(explain(path, layout, ValueError("odd"), 100)))


def test_a_quote_that_swallows_the_rest_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, 'a,b\n1,"2\n3,4\n')
    with pytest.raises(GraphError, match=r"line 2: a quote is not closed"):
        check_quotes(path, read_layout(path))
    check_quotes(write(tmp_path, 'a,b\n1,"2\n3",4\n'), read_layout(path))
