"""The examples of docs/forensics.md give what the page says."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import pytest

from tests import images
from tests.device.test_partition import disk
from tests.test_docs import DOCS, examples


def test_the_examples_give_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = DOCS / "forensics.md"
    images.copy_sparse(images.reference("phone").path, tmp_path / "card.img")
    images.copy_sparse(images.reference("fscrypt").path, tmp_path / "secret.img")
    disk("gpt", tmp_path, {16384: "base"}).rename(tmp_path / "disk.img")
    keys = json.loads(images.reference("fscrypt").text("keys.json"))["keys"]
    (tmp_path / "alice.key").write_text(next(key["key"] for key in keys if key["dir"] == "v2-adiantum"))
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(examples(page), {}, page.name, str(page), 0)
    assert len(test.examples) > 20
    result = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL | doctest.ELLIPSIS).run(test)
    assert not result.failed, capsys.readouterr().out
