"""tools/tidy.py catches a violation of each of its rules, and leaves good code alone."""

from __future__ import annotations

from pathlib import Path

import dev_tidy
import pytest
import tidy
import tidy_cpp

HEAD = "// A file.\n#pragma once\n"
BODY = "// A file.\n"


def rules_of(root: Path, files: dict[str, str], rule: str | None = None) -> list[str]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [str(finding) for finding in tidy.findings(root, rule)]


def test_the_tree_has_no_include_that_points_up_or_sideways(project_root: Path) -> None:
    assert [str(finding) for finding in tidy.findings(project_root, "layers")] == []


@pytest.mark.parametrize(
    ("path", "line", "said"),
    [
        ("src/base/a.cc", "#include <lumen/queue/mpmc_queue.h>", "base may not use queue"),
        ("src/queue/a.cc", '#include "lumen/memory/arena.h"', "queue may not use memory"),
        ("include/lumen/engine/a.h", '#include "lumen/net/loop.h"', "engine may not use net"),
        ("src/wire/a.cc", "#include <sys/socket.h>", "wire may not include sys/socket.h"),
        ("src/wire/a.cc", '#  include "lumen/base/clock.h"', "may not include lumen/base/clock.h"),
        (
            "src/server/a.cc",
            "#include <openvino/openvino.hpp>",
            "only src/backends/openvino/backend.cc",
        ),
        ("src/server/a.cc", '#include "engine/secret.h"', "private to the module engine"),
        ("apps/a.cc", '#include "engine/secret.h"', "private to the module engine"),
        ("include/lumen/engine/a.h", '#include "engine/secret.h"', "a face may not include"),
        ("src/server/a.cc", '#include "../engine/secret.h"', "goes round the roots"),
        ("src/client/a.cc", '#include "lumen/server/server.h"', "client may not use server"),
        ("src/memory/a.cc", '#include "lumen/queue/spsc_queue.h"', "memory may not use queue"),
        (
            "src/service/a.cc",
            "#include <lumen/transports/http/transport.h>",
            "service may not use http",
        ),
        ("src/attic/a.cc", "#include <vector>", "stands in no module"),
    ],
)
def test_an_include_against_the_floors_is_found(
    tmp_path: Path, path: str, line: str, said: str
) -> None:
    text = (HEAD if path.endswith(".h") else BODY) + line + "\n"
    found = rules_of(tmp_path, {path: text, "src/engine/secret.h": HEAD}, "layers")
    assert len(found) == 1 and said in found[0], found
    assert found[0].startswith(f"{path}:{text.count(chr(10))}: layers: ")


def test_an_include_that_points_down_is_fine(tmp_path: Path) -> None:
    text = BODY + (
        '#include "server/own.h"\n#include "lumen/base/check.h"\n#include "lumen/engine/engine.h"\n'
        '// #include "lumen/nowhere/x.h"\n#include <vector>\n'
    )
    assert rules_of(tmp_path, {"src/server/a.cc": text, "src/server/own.h": HEAD}) == []


def test_a_module_that_lists_one_above_it_is_found(tmp_path: Path) -> None:
    layers = '[modules]\nbase = {floor = 0, uses = ["queue"]}\nqueue = {floor = 1, uses = []}\n'
    found = rules_of(tmp_path, {"tools/layers.toml": layers + "[outside]\n"}, "layers")
    assert "base (floor 0) may not list queue" in found[0]


def test_a_grant_that_nobody_needs_is_found(tmp_path: Path) -> None:
    """A file's include is a need, and so are the modules that the included face shows."""
    rows = (
        '[modules]\na = {floor = 0, uses = []}\nb = {floor = 1, uses = ["a"]}\n'
        'c = {floor = 2, uses = ["a", "b"]}\nd = {floor = 3, uses = ["a", "b", "c"]}\n[outside]\n'
    )
    files = {
        "tools/layers.toml": rows,
        "include/lumen/a/a.h": HEAD,
        "include/lumen/b/b.h": HEAD + "#include <lumen/a/a.h>\n",
        "src/c/c.cc": BODY + "#include <lumen/b/b.h>\n",
        "include/lumen/c/c.h": HEAD,
        "src/d/d.cc": BODY + "#include <lumen/c/c.h>\n",
    }
    found = rules_of(tmp_path, files, "layers")
    assert [line.split(": ")[-1] for line in found] == ["d does not need a", "d does not need b"]


def body_of(lines: int) -> str:
    return "".join(f"  work({number});\n" for number in range(lines))


def test_a_source_that_hides_what_its_header_needs_is_found(tmp_path: Path) -> None:
    files = {
        "include/lumen/base/a.h": HEAD,
        "src/base/a.cc": BODY + "#include <lumen/base/clock.h>\n#include <lumen/base/a.h>\n",
        "src/base/b.cc": BODY + "#include <lumen/base/a.h>\n",
    }
    wanted = "src/base/a.cc:1: includes: the first include is to be <lumen/base/a.h>"
    assert rules_of(tmp_path, files, "includes") == [wanted]
    good = {"src/base/a.cc": BODY + "#include <lumen/base/a.h>\n\n#include <string>\n"}
    assert rules_of(tmp_path, good, "includes") == []


@pytest.mark.parametrize(
    "head",
    [
        "void f() {",
        "int Foo::bar(int a) const noexcept {",
        "Foo::Foo() : a_(1), b_{2} {",
        "namespace lumen {\nclass X {\n  void f() override {",
        "TEST(Queue, KeepsOrder) {",
        "template <class T>\nauto f(T&& t) -> decltype(t) {",
    ],
)
def test_a_function_above_seventy_lines_is_found(tmp_path: Path, head: str) -> None:
    closing = "}\n" * head.count("{") if "b_{2}" not in head else "}\n"
    small = {"src/base/a.cc": f"{BODY}{head}\n{body_of(60)}{closing}"}
    large = {"src/base/a.cc": f"{BODY}{head}\n{body_of(70)}{closing}"}
    assert rules_of(tmp_path, small, "size") == []
    found = rules_of(tmp_path, large, "size")
    assert len(found) == 1 and "function of 7" in found[0], found


def test_a_long_class_or_table_is_no_long_function(tmp_path: Path) -> None:
    members = "".join(f"  int a{number}_ = 0;\n" for number in range(100))
    table = "".join(f"  {number},\n" for number in range(100))
    text = f"{BODY}struct alignas(64) X final : Y {{\n{members}}};\nint t[] = {{\n{table}}};\n"
    assert rules_of(tmp_path, {"src/base/a.cc": text}, "size") == []


def test_braces_in_strings_comments_and_characters_do_not_count() -> None:
    text = 'void f() {\n  g("}{", \'{\', R"({{{)", 1\'000);  // {{\n  /* { */\n}\n'
    assert [(block.first_line, block.last_line) for block in tidy_cpp.functions(text)] == [(1, 4)]


def test_a_file_above_six_hundred_lines_is_found(tmp_path: Path) -> None:
    assert "601 lines" in rules_of(tmp_path, {"src/base/a.cc": "//\n" * 601}, "size")[0]
    assert "602 lines" in rules_of(tmp_path, {"tools/a.py": "#\n" * 602}, "size")[-1]


def test_a_long_python_function_is_found(tmp_path: Path) -> None:
    text = '"""Text."""\n\n\ndef f():\n' + "    work()\n" * 70
    assert "function of 71 lines" in rules_of(tmp_path, {"tools/a.py": text}, "size")[0]


def test_a_file_without_opening_comment_or_pragma_once_is_found(tmp_path: Path) -> None:
    files = {"src/base/a.cc": "int a;\n", "include/lumen/base/b.h": BODY, "tools/c.py": "a = 1\n"}
    found = "\n".join(rules_of(tmp_path, files, "opening"))
    assert "src/base/a.cc:1: opening: opens with 0 comment lines" in found
    assert "include/lumen/base/b.h:1: opening: a header needs #pragma once" in found
    assert "tools/c.py:1: opening: a script opens" in found


@pytest.mark.parametrize(
    ("path", "code", "name"),
    [
        ("tests/unit/a_test.cc", "std::this_thread::sleep_for(1ms);", "sleep"),
        ("tests/unit/a_test.cc", "usleep(5);", "sleep"),
        ("src/engine/a.cc", "std::regex pattern;", "regex"),
        ("src/engine/a.cc", "int a = rand();", "rand"),
        ("src/engine/a.cc", "strcpy(a, b);", "unbounded-c-string"),
        ("src/engine/a.cc", "std::sprintf(a, b);", "unbounded-c-string"),
        ("src/engine/a.cc", "char* a = gets(b);", "unbounded-c-string"),
        ("src/engine/a.cc", "int a = std::stoi(b);", "locale-number"),
        ("src/engine/a.cc", 'system("ls");', "system"),
        ("src/engine/a.cc", "void* a = alloca(8);", "alloca"),
        ("src/engine/a.cc", "std::cout << 1;", "iostream"),
        ("src/engine/a.cc", "volatile int a;", "volatile"),
        ("src/queue/a.cc", "atomic_thread_fence(order);", "fence"),
        ("src/queue/a.cc", "int* a = new int(5);", "raw-allocation"),
        ("src/queue/a.cc", "auto a = new (std::nothrow) int[5];", "raw-allocation"),
        ("src/memory/a.cc", "delete[] a;", "raw-allocation"),
        ("src/net/a.cc", "void* a = std::malloc(8);", "raw-allocation"),
        ("src/engine/a.cc", "// TO" + "DO: finish", "unfinished"),
        ("docs/a.md", "FIX" + "ME", "unfinished"),
        ("docs/a.md", "see ../sha" + "red/design.md", "outside-path"),
        ("docs/a.md", "cd /ho" + "me/me/lumen && make", "outside-path"),
        ("docs/a.md", "cd /wo" + "rk/main && make", "outside-path"),
        ("tools/a.sh", "pip install -i https://py" + "pi.org/simple x", "registry-host"),
        ("tests/python/a.py", '"""Text."""\ntime.sleep(1)', "python-sleep"),
    ],
)
def test_a_banned_call_or_word_is_found(tmp_path: Path, path: str, code: str, name: str) -> None:
    text = f"{BODY if path.endswith('.cc') else ''}{code}\n"
    found = rules_of(tmp_path, {path: text}, "banned")
    assert len(found) == 1 and f"banned/{name}" in found[0], found


def test_code_that_only_looks_banned_is_fine(tmp_path: Path) -> None:
    text = BODY + (
        "#include <new>\n"
        "X(const X&) = delete;\n"
        "void* operator new(size_t) = delete;\n"
        "::new (place) T(value);\n"
        '// new things; malloc(8); rand()\nlog("new rand() std::cout");\n'
        "pool.free(a); my_rand(); queue.system(b); strand(c);\n"
        "// alloc: once, at start-up\nslots_ = new Slot[capacity];\n"
    )
    assert rules_of(tmp_path, {"src/queue/a.cc": text}, "banned") == []


def atomics(root: Path, code: str, doc: str = "") -> list[str]:
    files = {"src/queue/a.cc": BODY + "std::atomic<int> a;\n" + code, "docs/memory-model.md": doc}
    return rules_of(root, files, "atomics")


PAIR = (
    "// sync[q.slot]: pairs with pop\na.store(1, std::memory_order_release);\n\n\n\n\n"
    "a.load(std::memory_order_acquire);  // sync[q.slot]: pairs with push\n"
)


def test_a_labelled_pair_that_the_doc_lists_is_fine(tmp_path: Path) -> None:
    assert atomics(tmp_path, PAIR, "| `q.slot` | what |\n") == []
    assert atomics(tmp_path, PAIR.replace("order_", "order::"), "sync[q.slot]") == []


@pytest.mark.parametrize(
    ("code", "doc", "said"),
    [
        (PAIR, "", "sync[q.slot] isn't listed"),
        (PAIR, "| `q.slot` |\n| `q.gone` |\n", "lists `q.gone`"),
        (PAIR.splitlines()[1], "", "release without a `sync[label]:`"),
        ("\n".join(PAIR.splitlines()[:2]), "| `q.slot` |", "has one site"),
        (PAIR.replace("acquire", "release"), "| `q.slot` |", "has no acquire side"),
        (PAIR.replace("release", "acquire"), "| `q.slot` |", "has no release side"),
        ("a.load(std::memory_order_relaxed);", "", "relaxed without"),
        ("a.fetch_add(1);", "", "fetch_add() doesn't name"),
        ("a.load();", "", "load() doesn't name"),
        ("p->compare_exchange_weak(x, f(y));", "", "compare_exchange_weak() doesn't name"),
    ],
)
def test_an_unargued_or_one_sided_order_is_found(
    tmp_path: Path, code: str, doc: str, said: str
) -> None:
    found = atomics(tmp_path, code + "\n", doc)
    assert len(found) == 1 and said in found[0], found


def test_a_relaxed_that_says_why_is_fine(tmp_path: Path) -> None:
    code = (
        "// relaxed: a statistic\na.load(std::memory_order_relaxed);\n\n\n\n"
        "// relaxed everywhere: one writer, readers want no order.\nstruct S {\n  int f() {\n\n\n\n"
        "    return a.load(std::memory_order_relaxed);\n  }\n};\n"
    )
    assert atomics(tmp_path, code) == []
    assert len(atomics(tmp_path, code + "a.load(std::memory_order_relaxed);\n")) == 1


def test_the_failure_order_of_a_labelled_swap_needs_no_comment(tmp_path: Path) -> None:
    code = (
        "// sync[q.head]: both sides\n"
        "while (!a.compare_exchange_weak(old, next, std::memory_order_acq_rel,\n"
        "                                std::memory_order_relaxed)) {\n}\n"
        "a.load(std::memory_order_acquire);  // sync[q.head]\n"
    )
    assert atomics(tmp_path, code, "| `q.head` |") == []


def test_a_constant_that_stands_for_an_order_counts_as_that_order(tmp_path: Path) -> None:
    code = (
        "constexpr auto kPublish =\n"
        "    kLocked ? std::memory_order_seq_cst : std::memory_order_release;\n"
        "// sync[q.slot]: pairs with pop\na.store(1, kPublish);\n\n\n\n\n"
        "a.load(std::memory_order_acquire);  // sync[q.slot]: pairs with push\n"
    )
    assert atomics(tmp_path, code, "| `q.slot` |") == []
    found = atomics(tmp_path, code + "\n\n\n\na.store(2, kPublish);\n", "| `q.slot` |")
    assert len(found) == 1 and "release/seq_cst without a `sync[label]:`" in found[0]


def test_a_region_of_relaxed_ends_with_its_function(tmp_path: Path) -> None:
    inside = (
        "int f() {\n  // relaxed, all of them: statistics\n  for (;;) {\n    g();\n\n\n  }\n"
        "  return a.load(std::memory_order_relaxed);\n}\n"
    )
    assert atomics(tmp_path, inside) == []
    outside = inside + "int g() {\n  return a.load(std::memory_order_relaxed);\n}\n"
    assert len(atomics(tmp_path, outside)) == 1


def test_a_crowded_root_is_found(tmp_path: Path) -> None:
    files = {f"file{number}.txt": "" for number in range(21)} | {".hidden": ""}
    assert "21 entries at the root, at most 20" in rules_of(tmp_path, files, "root")[0]
    (tmp_path / "file0.txt").unlink()
    assert rules_of(tmp_path, {}, "root") == []


CLAUSES = """// Wakes whoever waits for what was pushed; who takes it tells what it has.
// Whatever is left is for whom it was meant.
"""
NAMED = """// Wakes a worker that waits for a request; the worker that takes it tells its number.
// `what` names the parameter, <what> a placeholder, and "who goes there" is printed.
"""


def test_clauses_as_nouns_are_found_and_named_things_are_not(tmp_path: Path) -> None:
    found = rules_of(tmp_path, {"src/base/a.cc": CLAUSES, "src/base/b.cc": NAMED}, "english")
    assert any(one.startswith("src/base/a.cc:1: english: 6 of what, who") for one in found), found
    assert not any(one.startswith("src/base/b.cc") for one in found)


def test_clauses_as_nouns_are_found_in_comments_and_docstrings_of_python(tmp_path: Path) -> None:
    clauses = (
        '"""Returns what it found."""\n\n\ndef f():\n    """Asks who is there."""  # or whoever\n'
    )
    named = '"""Returns the text "what"."""\n\nWHAT = "what came of it"  # the greeting\n'
    found = rules_of(tmp_path, {"tools/a.py": clauses, "tools/b.py": named}, "english")
    assert any("tools/a.py:5: english: 3 of what, who" in one for one in found), found
    assert not any(one.startswith("tools/b.py") for one in found)


def test_prose_of_a_comment_beyond_100_columns_is_found_and_a_diagram_is_not(
    tmp_path: Path,
) -> None:
    prose = "// " + "word " * 20 + "end.\n"
    diagram = "//   I/O thread ──► " + "worker ──► " * 10 + "\n// a  " + "b" * 100 + "\n"
    found = rules_of(tmp_path, {"src/base/a.cc": prose, "src/base/b.cc": diagram}, "width")
    assert found == ["src/base/a.cc:1: width: 107 columns, at most 100"]


def test_one_clause_in_a_short_file_is_borne_but_not_one_in_each(tmp_path: Path) -> None:
    one = {"src/base/a.cc": "// Counts what came.\n"}
    assert [str(each) for each in rules_of(tmp_path, one, "english")] == [
        ".:1: english: 1 clauses as nouns in 3 words of comments"
    ]
    long = {"src/base/b.cc": "// " + "word " * 90 + "\n" + ("// " + "word " * 18 + "\n") * 30}
    assert rules_of(tmp_path, one | long, "english") == []


def test_a_file_without_its_comments_is_the_same_while_only_comments_change() -> None:
    before = 'int a = 1;  // one\n/* two */ const char* b = "// no comment";\n'
    after = 'int a = 1;\n\n// another\nconst char* b = "// no comment";  // two\n'
    assert tidy_cpp.without_comments(before) == tidy_cpp.without_comments(after)
    assert tidy_cpp.without_comments(before) != tidy_cpp.without_comments(before.replace("1", "2"))


@pytest.mark.parametrize(("common", "base"), [("abc", "abc"), ("older", None)])
def test_clang_tidy_reads_changes_since_the_noted_landing_if_this_history_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, common: str, base: str | None
) -> None:
    answers = {
        ("rev-parse", "HEAD"): ["head"],
        ("merge-base", "HEAD", "origin/main"): ["head"],  # a fresh clone of a push
        ("merge-base", "abc", "HEAD"): [common],
    }
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "landed").write_text("abc\n")
    monkeypatch.delenv("LUMEN_TIDY_BASE", raising=False)
    monkeypatch.setattr(dev_tidy, "ROOT", tmp_path)
    monkeypatch.setattr(dev_tidy, "git", lambda *words: answers[words])
    assert dev_tidy.landed() == base
