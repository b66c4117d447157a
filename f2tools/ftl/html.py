"""Simulations side by side as one HTML file: tables and pictures, no script, nothing fetched."""

from __future__ import annotations

from f2tools.ftl.replay import Result
from f2tools.ftl.report import COLUMNS, cells
from f2tools.pictures.svg import Picture, svg
from f2tools.text import PAGE_HEAD, markup

STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.45 system-ui,sans-serif;max-width:1000px;margin:1.5em auto;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.4em;overflow-wrap:anywhere}h2{font-size:1.1em;margin:1.8em 0 .4em}.wide{overflow-x:auto}
table{border-collapse:collapse;margin:.5em 0}th,td{padding:.15em .7em;text-align:right;border-bottom:1px solid #8884}
th:first-child,td:first-child{text-align:left}th,td{white-space:nowrap}svg{width:100%;height:auto;margin:.6em 0}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181a1b}}
"""


def page(found: list[Result], title: str, pictures: list[Picture]) -> str:
    """The whole file."""
    head = "".join(f"<th>{markup(name)}</th>" for name in COLUMNS)
    rows = "".join("<tr>" + "".join(f"<td>{markup(cell)}</td>" for cell in cells(one)) + "</tr>" for one in found)
    drawn = "".join(f"<h2>{markup(what.title)}</h2>{svg(what)}" for what in pictures)
    return (
        PAGE_HEAD + '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{markup(title)}</title><style>{STYLE}</style></head><body><h1>{markup(title)}</h1>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{drawn}'
        "</body></html>\n"
    )
