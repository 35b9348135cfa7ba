"""Two requests about a tree of our own, as sets have them, and a model that knows one of the answers."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.server.conftest import address, served
from tests.server.serving import script
from vivace.eval.requests.requests import Request, Scripts

__all__ = ["address", "served"]

SHOP = '''def total_price(items):
    """Return what all items cost."""
    return sum(item.price for item in items)
'''
DISCOUNTS = "def discount_of(price):\n    # a tenth\n    return price / 10\n"
TEST = "from discounts import discount_of\n\n\ndef test_discount():\n    assert discount_of(10) == 1\n"
TREE = {
    "shop-1.0/shop.py": SHOP,
    "shop-1.0/discounts.py": DISCOUNTS,
    "shop-1.0/tests/test_shop.py": TEST,
}
KEEPS = """
from discounts import discount_of
from shop import total_price
assert total_price([]) == 0 and discount_of(10) == 1
"""
CHECK = """
from shop import total_price
try:
    total_price(None)
except ValueError:
    pass
else:
    raise AssertionError
"""
RIGHT = '''def total_price(items):
    """Return what all items cost."""
    if items is None:
        raise ValueError("no items")
    return sum(item.price for item in items)
'''
PATCH = """--- a/shop.py
+++ b/shop.py
@@ -2,2 +2,4 @@
     \"\"\"Return what all items cost.\"\"\"
+    if items is None:
+        raise ValueError("no items")
     return sum(item.price for item in items)
"""
ASKED = "total_price should raise ValueError when items is None."
ALSO_ASKED = "discount_of should return a fifth of the price."


def make_archive(file: Path, tree: dict[str, str]) -> Path:
    with tarfile.open(file, "w:gz") as archive:
        for name, text in tree.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return file


def make_request(folder: Path, name: str = "shop/none", text: str = ASKED, check: str = CHECK) -> Request:
    archive = folder / "shop.tar.gz"
    if not archive.exists():
        make_archive(archive, TREE)
    return Request(name, text, archive, PATCH, Scripts(".", check, KEEPS))


@pytest.fixture
def request_of_none(tmp_path: Path) -> Request:
    return make_request(tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Right about `total_price`; of `discount_of` it changes a comment alone."""
    worded = "def discount_of(price):\n    # a fifth\n    return price / 10\n"
    replies = {
        "You locate code": "total_price`",
        f"Task: {ASKED}": f"```python\n{RIGHT}```",
        f"Task: {ALSO_ASKED}": f"```python\n{worded}```",
    }
    return script(tmp_path, replies=replies)


RUN_TESTS = """
import json, os, sys
sys.path.insert(0, ".")
import discounts
import shop
found = {"keeps": "passed" if discounts.discount_of(10) == 1 else "failed"}
try:
    shop.total_price(None)
except ValueError:
    found["raises"] = "passed"
except TypeError:
    found["raises"] = "failed"
json.dump(found, open(os.environ["TASK_REPORT"], "w"))
"""


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A folder of repository tasks whose tests are a program of their own."""
    folder = tmp_path / "tasks"
    (folder / "archives").mkdir(parents=True)
    rows = []
    for name, text in (("shop-none", ASKED), ("shop-fifth", ALSO_ASKED)):
        make_archive(folder / "archives" / f"{name}.tar.gz", TREE)
        row = {
            "id": name,
            "statement": text,
            "python_packages": [],
            "test_command": "python run_tests.py",
            "test_files": {"run_tests.py": RUN_TESTS, "tests/test_shop.py": None},
            "fail_to_pass": ["raises"],
            "pass_to_pass": ["keeps"],
            "source_patch": PATCH,
            "licence": "not read by us",
        }
        rows.append(json.dumps(row))
    (folder / "tasks.jsonl").write_text("\n".join(rows) + "\n")
    return folder
