#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Changes a small library in one way after the other, and expects tools/abi.sh to let pass what the versions allow.

    abi_test.py COMPILER
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILER = sys.argv[1]

HEADER = """
#include <memory>
#include <string>
namespace chainmail {
struct Options { std::string path; int keep = 5; };
enum class Mode { kA, kB };
class __attribute__((visibility("default"))) Report {
 public:
  virtual ~Report();
  virtual void finish();
};
class __attribute__((visibility("default"))) Job {
 public:
  struct Impl;
  explicit Job(const Options& options);
  ~Job();
  int run(Report& report, Mode mode);
  template <typename T>
  T copied(T value);
 private:
  std::unique_ptr<Impl> impl_;
};
template <typename T>
T Job::copied(T value) { return value; }
}
"""
SOURCE = """
#include <chainmail/sample.h>
namespace chainmail {
struct Job::Impl { explicit Impl(int k) : keep(k) {} int keep; void go(); };
void Job::Impl::go() { ++keep; }
Report::~Report() = default;
void Report::finish() {}
Job::Job(const Options& options) : impl_(new Impl(options.keep)) {}
Job::~Job() = default;
int Job::run(Report& report, Mode mode) { impl_->go(); report.finish(); return mode == Mode::kA ? 0 : impl_->keep; }
}
"""
# What is changed: (old, new) in the header and in the source, and what the report says.
BREAKS = {
    "a virtual function inserted": ([("virtual void finish", "virtual void begin();\n  virtual void finish")],
                                    [("Report::~", "void Report::begin() {}\nReport::~")], "vtable"),
    "a member of options added": ([("int keep = 5;", "int keep = 5; double ratio = 0;")], [], "double ratio"),
    "a member of options gone": ([("std::string path;", "")], [], "path"),
    "a function gone": ([("int run(Report& report, Mode mode);", "")], [("int Job::run", "static int run"), ("impl_->go(); ", ""), ("impl_->keep", "1")],
                        "1 Removed function"),
    "an argument changed": ([("run(Report& report, Mode", "run(const Report& report, Mode")],
                            [("run(Report&", "run(const Report&"), ("report.finish();", "")], "1 Removed function"),
    "an enumerator inserted": ([("{ kA, kB }", "{ kA, kNew, kB }")], [], "kNew"),
}
ADDITIONS = {
    "a function added": ([("int run(", "int more();\n  int run(")], [("Job::~", "int Job::more() { return 1; }\nJob::~")],
                         "Job::more"),
    "an enumerator appended": ([("{ kA, kB }", "{ kA, kB, kC }")], [], "kC"),
}
NOTHING = {
    "nothing": ([], [], ""),
    "what programs cannot see": ([], [("int keep;", "int keep; double hidden; void gone();"),
                                      ("void go();", "virtual void go();")], ""),
    "an instance of a template": ([], [("int Job::run", "template int Job::copied<int>(int);\nint Job::run")], ""),
}


def replaced(text, changes):
    for old, new in changes:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    return text


class AbiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        for path in ("tools/abi.sh", "abi/suppressions.ini", "CMakeLists.txt", "base/error.h", "base/export.h"):
            (cls.root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, cls.root / path)
        cls.header = cls.root / "plugin/include/chainmail/sample.h"
        cls.header.parent.mkdir(parents=True)
        cls.libraries = {}
        for version in ("0.2.0", "1.4.0"):
            result = cls.abi("dump", cls.build(), f"{cls.root}/abi/libchainmail-{version}.abi")
            assert result.returncode == 0, result.stdout
            assert str(cls.root) not in (cls.root / f"abi/libchainmail-{version}.abi").read_text()

    @classmethod
    def build(cls, header=(), source=(), soname="libchainmail.so.1", debug="-g"):
        """The path of a library; each is built once."""
        key = (str(header), str(source), soname, debug)
        if key not in cls.libraries:
            library = cls.root / f"{len(cls.libraries)}.so"
            cls.header.write_text(replaced(HEADER, header))
            (cls.root / "sample.cc").write_text(replaced(SOURCE, source))
            subprocess.run([COMPILER, "-std=c++20", debug, "-O1", "-fPIC", "-shared", "-fvisibility=hidden",
                            "-I", cls.root / "plugin/include", cls.root / "sample.cc", "-o", library,
                            f"-Wl,-soname,{soname}"], check=True, timeout=120)
            cls.libraries[key] = library
        return cls.libraries[key]

    @classmethod
    def abi(cls, *words):
        return subprocess.run([cls.root / "tools/abi.sh", *words], timeout=60, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)

    def assert_check(self, library, version, code, *wanted):
        result = self.abi("check", "--version", version, library)
        self.assertEqual(result.returncode, code, result.stdout)
        for text in wanted:
            self.assertIn(text, result.stdout)

    def test_what_breaks(self):
        for what, (header, source, wanted) in BREAKS.items():
            with self.subTest(what):
                library = self.build(header, source)
                self.assert_check(library, "0.2.1", 1, wanted, "need a greater version after 0.2.0 than 0.2.1")
                self.assert_check(library, "1.5.0", 1, wanted, "need a greater version after 1.4.0 than 1.5.0")
                self.assert_check(library, "2.0.0", 1, wanted, "need another SONAME than libchainmail.so.1")

    def test_what_breaks_may_do_so_under_another_soname(self):
        header, source, wanted = BREAKS["a member of options added"]
        library = self.build(header, source, "libchainmail.so.2")
        for version in ("0.3.0", "2.0.0"):
            self.assert_check(library, version, 0, wanted, "have to be built again")
        self.assert_check(library, "1.5.0", 1, wanted)

    def test_additions(self):
        for what, (header, source, wanted) in ADDITIONS.items():
            with self.subTest(what):
                library = self.build(header, source)
                self.assert_check(library, "1.4.1", 1, wanted, "need another minor version than 1.4.0")
                self.assert_check(library, "1.5.0", 0, wanted, "go on running")
                self.assert_check(library, "0.3.0", 0, wanted)

    def test_nothing(self):
        for what, (header, source, _) in NOTHING.items():
            with self.subTest(what):
                self.assert_check(self.build(header, source), "0.2.1", 0, "nothing has changed")

    def test_last_release_is_found(self):
        self.assert_check(self.build(), "0.10.0", 0, "0.10.0 after 0.2.0: anything may change")
        self.assert_check(self.build(), "1.4.0", 0, "1.4.0 after 0.2.0: anything may change")
        self.assert_check(self.build(), "0.2.0", 0, "nothing to compare with")

    def test_library_without_types(self):
        self.assert_check(self.build(debug="-g1"), "0.2.1", 2, "build it with -g")
        self.assert_check(self.root / "gone.so", "0.2.1", 2, "there is no library")
        self.assert_check(self.root / "CMakeLists.txt", "0.2.1", 2, "is no library")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
