"""What can be wrong with a volume, each with a code that stays for good."""

from __future__ import annotations

from dataclasses import dataclass

from f2tools.flash.findings import Case, Problem, catalogue

PROBLEMS = catalogue(
    Problem("DFF001", "a copy of the superblock is damaged: {detail}"),
    Problem("DFF002", "the copies of the superblock say different things"),
    Problem("DFF003", "the checkpoint counts {detail}"),
    Problem("DFF004", "the newest checkpoint can't be read: {detail}"),
    Problem("DFF005", "the log was committed further than it can be followed: {detail}"),
    Problem("DFF010", "a page of the mapping table can't be used: {detail}"),
    Problem("DFF011", "the link count is wrong: {detail}"),
    Problem("DFF012", "the count of pages is wrong: {detail}"),
    Problem("DFF013", "a logical id leads to a page, and no name leads to it: {detail}"),
    Problem("DFF020", "the directory can't be used: {detail}"),
    Problem("DFF021", "the count of children is wrong: {detail}"),
    Problem("DFF022", "a bucket of the directory is damaged: {detail}"),
    Problem("DFF023", "an entry stands in the wrong place: {detail}"),
    Problem("DFF024", "an entry leads to what can't be used: {detail}"),
    Problem("DFF025", "the name {detail} stands there twice"),
    Problem("DFF026", "the parent of the directory is wrong: {detail}"),
    Problem("DFF027", "the parent of an entry is wrong: {detail}"),
    Problem("DFF028", "the directory stands at a second place, as {detail}"),
    Problem("DFF030", "a virtual inode of the directory can't be used: {detail}"),
    Problem("DFF031", "the list of the directory's virtual inodes is broken: {detail}"),
    Problem("DFF032", "the count of virtual inodes is wrong: {detail}"),
    Problem("DFF040", "an address is wrong: {detail}"),
    Problem("DFF041", "the page belongs to something else too"),
    Problem("DFF042", "something else leads there too: {detail}"),
    Problem("DFF043", "the file's content can't be found: {detail}"),
    Problem("DFF044", "there is content behind the end of the file: {detail}"),
    Problem("DFF045", "a page of the file's content can't be read: {detail}"),
    Problem("DFF046", "the symbolic link leads nowhere: {detail}"),
    Problem("DFF050", "the space table can't be read: {detail}"),
    Problem("DFF051", "the page is in use, and the space table says that it is free"),
    Problem("DFF052", "{detail} pages are in use by the space table and belong to nothing"),
)


@dataclass(frozen=True, slots=True)
class Finding(Case):
    """One case: which problem, of which inode, at which page."""

    page: int | None = None

    def where(self) -> list[str]:
        return [*Case.where(self), *([] if self.page is None else [f"page {self.page}"])]


def finding(code: str, detail: str = "", ino: int | None = None, page: int | None = None) -> Finding:
    """A case of a problem."""
    return Finding(code, PROBLEMS[code].text.format(detail=detail), ino, page)
