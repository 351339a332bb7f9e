"""The figures of scripts/house.py, on small trees."""

import pytest

from scripts import house


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Writes files into a temporary tree. Returns their names."""
    monkeypatch.setattr(house, "ROOT", tmp_path)

    def write(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return sorted(files)

    return write


def test_circles_are_groups_that_reach_each_other():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"g"}, "g": {"f"}}
    assert sorted(map(sorted, house.circles(graph))) == [["a", "b", "c"], ["f", "g"]]


def test_arrows_up_are_those_of_the_rarer_direction():
    down = [("host", "types")] * 5 + [("host", "host")] * 3
    assert house.arrows_up(down) == 0
    assert house.arrows_up([*down, ("types", "host"), ("types", "host")]) == 2


def test_an_import_is_seen_wherever_it_stands():
    text = (
        "from a import b\ndef f():\n    import c.d\n    importlib.import_module('e')\n"
        "    import_module(name)\nfrom . import g\n"
    )
    assert set(house.imported(text, {"a", "c.d", "e", "g", "h"})) == {"a", "c.d", "e"}
    assert set(house.imported(text, {"a", "a.b"})) == {"a.b"}


def test_a_package_graph_has_modules_and_no_packages(tree):
    names = tree(
        {
            "p/all/one/__init__.py": "from all.one.b import x",
            "p/all/one/a.py": "from all.one import b",
            "p/all/one/b.py": "import_module('all.two.c')",
            "p/all/two/c.py": "import all.one.a",
        }
    )
    graph = house.python_graph(names, "p")
    assert graph == {"all.one.a": {"all.one.b"}, "all.one.b": {"all.two.c"}, "all.two.c": {"all.one.a"}}
    assert house.shape(graph, ".") == (
        "3 modules in 2 folders, 3 arrows; modules in circles: 3, circles of folders: 1, arrows up: 1"
    )


def test_a_public_module_beside_the_rooms_is_a_room():
    """The package's raw.py uses rooms, and a room uses its pieces.py. This is not a circle."""
    graph = {"all.raw": {"all.one.a"}, "all.one.a": {"all.pieces"}, "all.pieces": set()}
    assert house.shape(graph, ".").endswith("circles of folders: 0, arrows up: 0")
    assert "arrows up: 1" in house.shape({**graph, "all.pieces": {"all.one.a"}}, ".")


def test_a_header_and_its_source_are_one_unit(tree):
    names = tree(
        {"h/a.hpp": "", "h/a.cpp": '#include "a.hpp"\n#include "x/b.hpp"', "h/x/b.hpp": '#include "gone.hpp"'}
    )
    assert house.include_graph(names) == {"h/a": {"h/x/b"}, "h/x/b": set()}


def test_homes_are_code_written_by_hand(tree):
    names = tree(
        {
            "kernels/tables/kinds.toml": "[fwd_tall]\n",
            "kernels/fwd_tall.hpp": "// fwd_tall",
            "kernels/fwd_tall.inc": "fwd_tall",
            "kernels/made.py": "# Generated from x\nfwd_tall",
            "kernels/README.md": "fwd_tall",
            "kernels/other.py": "formula = fwd_tall_x",
            "tests/fwd_tall.py": "fwd_tall",
        }
    )
    hand = [name for name in names if house.written(name)]
    assert hand == ["kernels/fwd_tall.hpp", "kernels/other.py", "kernels/tables/kinds.toml"]
    assert house.homes("fwd_tall", hand) == 2
    assert house.kinds() == ["fwd_tall"]


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("kernels/tables/kinds.toml", "[mla]\n", True),
        ("kernels/tables/tiles.toml", "[mla.wmma]\n", True),
        ("kernels/tables/calls.toml", "[calls.mla]\n", False),
        ("kernels/device/mla.hpp", "  FA_KERNEL(forward, mla, dtype, head_dim)", True),
        ("kernels/host/plan.cpp", "forward_config(Op::mla, arch)", True),
        ("kernels/host/mla.cpp", '#include "host/calls/mla.hpp"\nvoid mla(const fa_mla_call&);', False),
        ("kernels/bindings/torch_ops.cpp", 'library.impl("mla", &boxed);', False),
        ("kernels/python/p/a.py", "MLA = torch.ops.flash_attn_rocm.mla.default  # ``mla``", False),
        ("kernels/python/p/b.py", "Kernel('mla')", True),
        ("kernels/python/p/c.py", 'library.impl("mla", f, "CPU")', False),
    ],
)
def test_an_operator_is_no_kind_of_the_same_name(tree, name, text, named):
    assert house.homes("mla", tree({name: text}), also_operator=True) == named


def test_words_are_those_of_prose():
    code = "```\ncode; that\n```\n\n    more code\n"
    text = f"It is not that.\n\n{code}\n<!-- table: t -->\n| which |\n<!-- end: t -->\n"
    assert house.prose(text).split() == ["It", "is", "not", "that."]
    assert house.words_line("x", house.prose(text)).split() == ["x", "4", "250.0", "250.0", "0.0"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.py", '"""One."""\nx = "no"  # two\n\ndef f():\n    """Three."""\n', ["One.", "Three.", "two"]),
        ("a.cpp", 'int x; // one\n/* two\n   three */ auto y = "four";\n', ["one", "two", "three"]),
        ("a.toml", "# one\nx = 1  # two\n", ["one", "two"]),
        ("a.sh", "#!/bin/sh\n# one\n", ["one"]),
    ],
)
def test_words_of_a_source_are_its_docstrings_and_comments(name, text, words):
    assert house.remarks(name, text).split() == words


def test_a_whole_report(tree):
    names = tree(
        {
            "kernels/tables/kinds.toml": "[mla]\n",
            "kernels/tables/calls.toml": "[calls.mla]\n",
            "kernels/python/p/a.py": "from wheel_builder.base import store\n",
            "wheel_builder/base/store.py": '"""What that is; a store."""\n',
            "tests/test_a.py": "",
            "README.md": "Words.\n",
            **{f"docs/{number}.md": "More.\n" for number in range(16)},
        }
    )
    lines = [" ".join(line.split()) for line in house.report(names)]
    assert lines[0] == "folders with more than 15 files: 1 docs 16"
    assert "kernels imports wheel_builder: 1" in lines
    assert "homes of a kernel kind: mla 1" in lines
    assert "product: 4" in lines
    assert "all documents 17 0.0 0.0 0.0" in lines
    assert "remarks in wheel_builder/ 5 400.0 0.0 200.0" in lines
