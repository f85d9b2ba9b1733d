"""What tools/check_links.py calls broken."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_links  # noqa: E402


class CheckLinks(unittest.TestCase):
    def broken(self, text):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / "other.md").write_text("# One `word`, two\n```\n# not a heading\n```\n# Twice\n# Twice\n")
            (root / "page.md").write_text(text)
            return list(check_links.broken(root, root / "page.md"))

    def test_what_exists_passes(self):
        self.assertEqual(self.broken("# Here\n[a](other.md) [b](other.md#one-word-two) [c](#here) "
                                     "[d](other.md#twice-1) [e](https://nowhere.example/)\n"), [])

    def test_a_missing_file_is_named_with_its_line(self):
        self.assertEqual(self.broken("\n[a](absent.md)\n"), ["page.md:2: absent.md: no such file"])

    def test_a_missing_heading_is_named(self):
        self.assertEqual(self.broken("[a](other.md#not-a-heading)\n"),
                         ["page.md:1: other.md#not-a-heading: no such heading"])

    def test_a_reference_is_a_link(self):
        self.assertEqual(self.broken("[a]: absent.md\n"), ["page.md:1: absent.md: no such file"])

    def test_code_is_not_prose(self):
        self.assertEqual(self.broken("```\n[a](absent.md)\n```\nand `[b](absent.md)`\n"), [])


if __name__ == "__main__":
    unittest.main()
