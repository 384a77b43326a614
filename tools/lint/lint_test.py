#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Plants violations in a small tree and expects the lint checks to find exactly these."""

import os
import shutil
import tempfile
import unittest

import docs
import doxygen
import environment
import files
import format as code_format
import includes
import readme
import type_names
import version
import waits

HEAD = "".join(f"// {line}\n" for line in files.SPDX)


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8", newline="") as file:
            file.write(text)


class FormatTest(unittest.TestCase):
    def test_braced_bodies(self):
        for text, found in [
            ("  if (a) {\n    b();\n  }\n", 1),
            ("  for (auto& a : b()) {\n    a.c();\n  }\n", 1),
            ("  if (a) b();\n", 0),
            ("  if (a) {\n    b();\n  } else {\n    c();\n  }\n", 0),
            ("  if (a) {\n    b();\n    c();\n  }\n", 0),
            ("  if (a) {\n    b();  // why\n  }\n", 0),
            ("  for (;;) {\n    if (a) b();\n  }\n", 0),
            ("  if (a) {\n    " + "b" * 92 + ";\n  }\n", 0),
        ]:
            with self.subTest(text=text):
                self.assertEqual(len(code_format.braced_bodies("a.cc", text)), found)


class IncludesTest(Tree):
    def assert_rule(self, path, header, is_allowed, text=""):
        self.write(path, f"{HEAD}\n#include {header}\n{text}")
        problems = includes.check(self.root)
        os.remove(os.path.join(self.root, path))
        self.assertEqual(len(problems), 0 if is_allowed else 1, f"{path} {header}: {problems}")
        if problems:
            self.assertTrue(problems[0].startswith(f"{path}:4: may not include "), problems)

    def test_table(self):
        for path, header, is_allowed in [
            ("ops/comm/mpi/open_mpi.cc", "<mpi.h>", True),
            ("ops/comm/tcp/tcp_transport.cc", "<mpi.h>", False),
            ("plugin/include/chainmail/mpi.h", "<mpi.h>", False),
            ("ops/comm/nccl/nccl_library.cc", "<nccl.h>", True),
            ("plugin/c10d/backend/backend.cc", "<nccl.h>", False),
            ("ops/kernels/cuda/pack.cu", "<cuda_runtime.h>", True),
            ("ops/kernels/cpu/pack.cc", "<cuda_runtime.h>", False),
            ("ops/types.cc", "<ATen/core/Tensor.h>", False),
            ("launcher/main.cc", "<torch/torch.h>", False),
            ("plugin/c10d/backend/backend.cc", "<torch/torch.h>", False),
            ("plugin/train/optimizer.cc", "<torch/torch.h>", True),
            ("plugin/train/optimizer.cc", "<torch/csrc/distributed/c10d/Store.hpp>", False),
            ("plugin/include/chainmail/backend.h", "<torch/csrc/distributed/c10d/Store.hpp>", True),
            ("plugin/include/chainmail/optimizer.h", "<torch/csrc/distributed/c10d/Store.hpp>",
             False),
            ("examples/cpp_ddp/main.cc", "<torch/csrc/distributed/c10d/reducer.hpp>", True),
            ("examples/train_mnist/main.cc", "<torch/csrc/distributed/c10d/reducer.hpp>", False),
            ("tests/plugin/c10d/work/work_test.cc", "<torch/csrc/distributed/c10d/Work.hpp>", True),
            ("tests/ops/group_test.cc", "<torch/torch.h>", False),
            ("base/log.cc", "<glog/logging.h>", True),
            ("base/log.h", "<glog/logging.h>", False),
            ("launcher/placement/placement.cc", "<gflags/gflags.h>", False),
            ("launcher/hosts/hosts.h", "<nlohmann/json.hpp>", False),
            ("launcher/hosts/hosts.cc", "<nlohmann/json.hpp>", True),
            ("base/error.cc", '"base/error.h"', True),
            ("base/error.cc", '"ops/types.h"', False),
            ("ops/types.cc", '"plugin/job/world.h"', False),
            ("launcher/main.cc", '"ops/types.h"', False),
            ("plugin/train/optimizer.cc", '"launcher/job/options.h"', False),
            ("plugin/include/chainmail/optimizer.h", '"base/error.h"', False),
            ("plugin/include/chainmail/optimizer.h", "<chainmail/error.h>", True),
            ("examples/train_mnist/main.cc", '"base/log.h"', False),
            ("tools/bench/main.cc", '"ops/engine/group.h"', True),
            ("tests/launcher/hosts_test.cc", '"launcher/hosts/hosts.h"', True),
            ("tests/base/error_test.cc", "<gtest/gtest.h>", True),
            ("base/error.cc", "<gtest/gtest.h>", False),
            ("ops/kernels/cpu/reduce.cc", "<vector>", True),
        ]:
            with self.subTest(path=path, header=header):
                self.assert_rule(path, header, is_allowed)

    def test_floors_of_the_launcher(self):
        for path, header, is_allowed in [
            ("launcher/main.cc", '"launcher/agent/agent.h"', True),
            ("launcher/agent/agent.cc", '"launcher/agent/agent.h"', True),
            ("launcher/agent/agent.cc", '"launcher/process/signals.h"', True),
            ("launcher/process/signals.cc", '"launcher/agent/agent.h"', False),
            ("launcher/controller/state/agents.cc", '"launcher/controller/shutdown.h"', False),
            ("launcher/new/thing.cc", '"launcher/process/signals.h"', False),
            ("tests/launcher/process/a_test.cc", '"launcher/agent/agent.h"', True),
        ]:
            with self.subTest(path=path, header=header):
                self.assert_rule(path, header, is_allowed)

    def test_main_may_use_gflags(self):
        self.assert_rule("tools/bench/main.cc", "<gflags/gflags.h>", True, "int main() {}\n")
        self.assert_rule("tools/bench/table.cc", "<gflags/gflags.h>", False)

    def test_floors(self):
        for path, header, is_allowed in [
            ("ops/engine/create_group.cc", "ops/comm/comm.h", True),
            ("ops/comm/comm.h", "ops/core/failure/failure_state.h", True),
            ("ops/comm/comm.h", "ops/types.h", True),
            ("ops/comm/shm/join.cc", "ops/engine/group.h", False),
            ("ops/core/rendezvous.cc", "ops/comm/comm.h", False),
            ("ops/types.h", "ops/core/operation.h", False),
            ("ops/engine/plan/plan.h", "ops/engine/group.h", False),
            ("ops/engine/failure/x.cc", "ops/engine/transfers/transfers.h", False),
            ("ops/kernels/cpu/reduce.cc", "ops/kernels/element.h", True),
            ("ops/device/device_api.h", "ops/comm/nccl/nccl_api.h", False),
            ("ops/device_library/device_library.h", "ops/comm/nccl/nccl_api.h", True),
            ("tests/ops/core/x_test.cc", "ops/engine/group.h", True),
        ]:
            with self.subTest(path=path, header=header):
                self.assert_rule(path, f'"{header}"', is_allowed)

    def assert_circle(self, files_and_includes, wanted):
        for path, header in files_and_includes:
            self.write(path, f'{HEAD}#include "{header}"\n')
        problems = includes.check(self.root)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(wanted, problems[0])

    def test_circle_of_headers(self):
        self.assert_circle([("ops/core/a.h", "ops/core/b.h"), ("ops/core/b.h", "ops/core/c.h"),
                            ("ops/core/c.h", "ops/core/a.h")],
                           "headers that include each other: ops/core/a.h ops/core/b.h ops/core/c.h")

    def test_circle_of_folders(self):
        self.assert_circle([("ops/kernels/x/a.cc", "ops/kernels/b.h"),
                            ("ops/kernels/c.cc", "ops/kernels/x/d.h")],
                           "folders that include each other: ops/kernels ops/kernels/x")

    def test_build_folders_are_not_read(self):
        self.write("build/ops/x.cc", "#include <mpi.h>\n")
        self.write("build-asan/ops/x.cc", "#include <mpi.h>\n")
        self.assertEqual(includes.check(self.root), [])


class FilesTest(Tree):
    def assert_problem(self, path, text, wanted):
        self.write(path, text)
        problems = files.check(self.root)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(wanted, problems[0])

    def test_clean(self):
        self.write("base/a.h", HEAD + "#pragma once\n" * 290)
        self.write("base/b.cc", HEAD + "// Longer than 500 lines: one table.\n" + "\n" * 600)
        self.assertEqual(files.check(self.root), [])

    def test_licence(self):
        self.assert_problem("base/a.h", HEAD.splitlines()[0] + "\n", "FileCopyrightText")

    def test_licence_of_cmake(self):
        self.write("base/CMakeLists.txt", "# nothing\n")
        self.assertEqual(len(files.check(self.root)), 2)

    def test_missing_source(self):
        head = "".join(f"# {line}\n" for line in files.SPDX)
        self.write("ops/there.cc", HEAD)
        self.write("tests/here.cc", HEAD)
        self.assert_problem(
            "tests/CMakeLists.txt",
            head + "set(ops_dir ${PROJECT_SOURCE_DIR}/ops)\nadd_library(a ${ops_dir}/there.cc ${ops_dir}/gone.cc\n"
            "  ${CMAKE_CURRENT_SOURCE_DIR}/here.cc ${unknown}/other.cc)\n", "tests/CMakeLists.txt:4: there is no ops/gone.cc")

    def test_long_header(self):
        self.assert_problem("base/a.h", HEAD + "\n" * 300, "302 lines, at most 300")

    def test_long_source(self):
        self.assert_problem("base/a.cc", HEAD + "\n" * 500, "502 lines, at most 500")

    def test_carriage_return(self):
        self.assert_problem("base/a.cc", HEAD + "int x;\r\n", "a.cc:3: space or carriage return")

    def test_no_newline_at_end(self):
        self.assert_problem("docs/a.md", "text", "no newline")


class TypeNamesTest(Tree):
    def check(self, first, second, path="ops/b.cc"):
        self.write("ops/a.cc", first)
        self.write(path, second)
        return type_names.check(self.root)

    def test_clean(self):
        plan = "namespace a::b {\nclass Plan final : public Base<int> {\n  struct Part {};\n};\n}\n"
        for other in ["namespace a::c { struct Plan {}; }\n",
                      "namespace a { class Plan {}; }\n",
                      "namespace a::b {\nnamespace {\nstruct Plan {};\n}\n}\n",
                      "namespace a::b { class Plan; void f() { struct Plan {}; } }\n",
                      "namespace a::b { struct Other { enum Plan { x }; }; }\n",
                      "// namespace a::b { struct Plan {}; }\n",
                      "namespace a::b { const char* text = \"struct Plan {\"; }\n"]:
            with self.subTest(other=other):
                self.assertEqual(self.check(plan, other), [])

    def test_same_name(self):
        for other in ["namespace a { enum class Plan : int { x }; }\n",
                      "namespace a {\ntemplate <typename T>\nstruct alignas(64) Plan : B<T> {};\n}\n",
                      "#define OPEN {\nnamespace a { class EXPORT_API Plan {}; }\n",
                      "namespace a {\nstruct One { int x = '{'; };\nnamespace b { }\n"
                      "class Plan {};\n}\n"]:
            with self.subTest(other=other):
                problems = self.check("namespace a {\nstruct Plan {};\n}\n", other)
                self.assertEqual(len(problems), 1, problems)
                self.assertIn("a::Plan is also defined in ops/a.cc:2", problems[0])

    def test_two_tests_may_share_a_name(self):
        two = "namespace a { struct Plan {}; }\n"
        self.write("tests/a_test.cc", two)
        self.write("tests/b_test.cc", two)
        self.assertEqual(type_names.check(self.root), [])
        self.write("ops/a.cc", two)
        self.assertEqual(len(type_names.check(self.root)), 2)


class WaitsTest(Tree):
    def check(self, code, rows="", path="ops/a.cc"):
        self.write(path, code)
        self.write(waits.PAGE, rows)
        return waits.check(self.root)

    def test_every_wait_is_found(self):
        for call in ["changed_.wait(lock);", "thread->join();", "std::this_thread::sleep_for(x);",
                     "::poll(&one, 1, -1);", "waitpid(pid, nullptr, 0);", "::read(fd, x, 1);",
                     "const auto count = read(fd, x, 1);", "store->get(key);", "MPI_Finalize();",
                     "::syscall(SYS_futex, &bell);", "fcntl(fd, F_SETLKW, &lock);", "fsync(fd);"]:
            with self.subTest(call=call):
                problems = self.check(f"namespace a {{\nvoid A::run(int x) {{\n  {call}\n}}\n}}\n")
                self.assertEqual(problems, ["ops/a.cc:3: run() may block: say in "
                                            "docs/maintainers/waits.md what it waits for and what "
                                            "bounds that"])

    def test_what_is_listed_is_right(self):
        code = ("struct A final : B {\n  void stop() { thread_.join(); }\n\n  bool is_dead(int one,\n"
                "               int two) const {\n    return ::poll(&x, 1, 0);\n  }\n};\n")
        self.assertEqual(self.check(code, "| `ops/a.cc`: `stop` | x | 1 s |\n"
                                          "| `ops/a.cc`: `is_dead` | nothing | |\n"), [])

    def test_other_things_are_no_waits(self):
        for code in ["// It may sleep_for(ever).\n", 'const char* a = "x.join()";\n',
                     "void A::read(int x) {\n  queue.wait_pending();\n  other.read(y);\n}\n",
                     "void A::wait(int x);\n", "void poll(int x) {\n}\n"]:
            with self.subTest(code=code):
                self.assertEqual(self.check(code), [])

    def test_a_test_may_wait(self):
        self.assertEqual(self.check("void f() {\n  a.wait();\n}\n", path="tests/a_test.cc"), [])

    def test_gone(self):
        self.assertEqual(self.check("", "| `ops/a.cc`: `run` | x | 1 s |\n"),
                         ["docs/maintainers/waits.md: nothing in ops/a.cc blocks in run()"])


class EnvironmentTest(Tree):
    def setUp(self):
        super().setUp()
        self.write("docs/env.md", "| variable | meaning |\n| `CHAINMAIL_LOG` | x |\n"
                                  "| `RANK` | x |\n")
        self.write("base/log.cc", 'getenv("CHAINMAIL_LOG"); getenv("RANK");\n')

    def test_clean(self):
        self.write("tests/x_test.cc", 'setenv("CHAINMAIL_ONLY_A_TEST", "1");\n')
        self.write("base/export.h", "#define CHAINMAIL_API\n")
        self.assertEqual(environment.check(self.root), [])

    def test_undocumented(self):
        self.write("ops/a.cc", 'getenv("CHAINMAIL_NEW");\n')
        self.write("tools/b.sh", 'echo "${CHAINMAIL_OTHER:-}"\n')
        self.write("cmake/C.cmake", "set(x $ENV{CHAINMAIL_THIRD})\n")
        self.assertEqual(environment.check(self.root), [
            "ops/a.cc: CHAINMAIL_NEW is not in docs/env.md",
            "tools/b.sh: CHAINMAIL_OTHER is not in docs/env.md",
            "cmake/C.cmake: CHAINMAIL_THIRD is not in docs/env.md",
        ])

    def test_list(self):
        self.write(environment.LIST_FILE, '{"RANK", "launcher"}, {"SLURM_x", "srun"}\n')
        self.assertEqual(environment.check(self.root),
                         ["plugin/job/environment/env.cc: SLURM_x is not in docs/env.md"])

    def test_gone(self):
        self.write("base/log.cc", 'getenv("CHAINMAIL_LOG");\n')
        self.assertEqual(environment.check(self.root), ["docs/env.md: nothing in the code knows RANK"])


class DocsTest(Tree):
    def check(self, text, test=None, page="docs/a.md"):
        self.write(page, text)
        if test is not None:
            self.write("tests/a_test.sh", test)
        return docs.check(self.root, {})

    def assert_problem(self, text, wanted, test=None):
        problems = self.check(text, test)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(wanted, problems[0])

    def test_clean(self):
        self.assertEqual(self.check(
            "# A head (of all)\n[here](#a-head-of-all) [there](a.md) [out](https://x/y)\n"
            "<!-- run by tests/a_test.sh -->\n```sh\nrun it \\\n  --twice  # why\n```\n"
            "<!-- not run: needs a GPU -->\n```console\n$ run gpu\n```\n```cpp\na[b](c);\n```\n",
            test="run it --twice\n"), [])

    def test_unknown_command(self):
        self.assert_problem("```sh\nrun it\n```\n", "docs/a.md:1: no test is known to run this")

    def test_unmarked_block(self):
        self.assert_problem("```\nrun it\n```\n", "a block marked ''")

    def test_test_is_gone(self):
        text = "<!-- run by tests/a_test.sh -->\n```sh\nrun it\nrun that\n```\n"
        self.assert_problem(text, "run by tests/a_test.sh, which is not there")
        self.assert_problem(text, "contains neither docs/a.md nor 'run that'", test="run it")
        self.assertEqual(self.check(text, test="reads docs/a.md"), [])

    def test_dead_links(self):
        self.assert_problem("[a](gone.md)\n", "links to gone.md, which is not there")
        self.assert_problem("# One\n[a](#two)\n", "links to #two, but docs/a.md has no such heading")

    def test_messages(self):
        self.write("base/a.cc", 'throw Error("no room for " + name +\n            "; make "\n "some");\n')
        self.write("docs/troubleshooting.md",
                   "| message | do |\n|---|---|\n| `no room for ...; make some` | it |\n")
        self.assertEqual(docs.check(self.root, {}), [])
        self.write("base/a.cc", 'throw Error("no place for " + name);\n')
        self.assertEqual(docs.check(self.root, {}), [
            "docs/troubleshooting.md: no program says 'no room for'",
            "docs/troubleshooting.md: no program says '; make some'"])

    def test_paths(self):
        self.write("ops/a.h", HEAD)
        self.assertEqual(self.check("`ops/a.h` `ops/` `ops/NAME/b.h` `a/b`\n"), [])
        self.assert_problem("`ops/b.h`\n", "names ops/b.h, which is not there")

    def test_records_need_no_test(self):
        self.assertEqual(self.check("```\nrun it\n```\n", page="docs/results/a.md"), [])


class ReadmeTest(Tree):
    ROWS = [("tools/demo.sh", "ci", "run tools/demo.sh")]

    def check(self, text, ci="run tools/demo.sh\n"):
        self.write("ci", ci)
        self.write("README.md", text)
        return readme.check(self.root, self.ROWS)

    def test_clean(self):
        self.assertEqual(self.check("```sh\n# first\ntools/demo.sh --epoch 3  # x\n```\n[a](ci)\n"), [])

    def test_unknown_command(self):
        problems = self.check("```sh\ntools/demo.sh\ntools/other.sh \\\n  --x\n```\n")
        self.assertEqual(len(problems), 1, problems)
        self.assertIn("'tools/other.sh    --x'", problems[0])

    def test_test_is_gone(self):
        problems = self.check("```sh\ntools/demo.sh\n```\n", ci="nothing\n")
        self.assertEqual(problems, ["ci: does not contain 'run tools/demo.sh', so nothing runs "
                                    "'tools/demo.sh'"])

    def test_no_commands_and_dead_link(self):
        self.assertEqual(self.check("[a](gone.md)\n"), [
            "README.md: has no commands", "README.md: links to gone.md, which is not there"])


class VersionTest(Tree):
    def check(self, changelog, page=""):
        self.write("CMakeLists.txt", "project(chainmail VERSION 0.2.0 LANGUAGES CXX)\n")
        self.write("CHANGELOG.md", changelog)
        self.write("docs/a.md", page)
        return version.check(self.root)

    def test_clean(self):
        self.assertEqual(self.check("# Changelog\n\n## 0.2.0 (not released)\n\n## 0.1.0 (2026-11-28)\n",
                                    "`chainmail-0.2.0+torch2.11`, torch 2.11.0\n"), [])

    def test_disagreements(self):
        self.assertEqual(self.check("## 0.1.0 (soon)\n", "`chainmail-launcher_0.1.0_amd64.deb`\n"), [
            "CHANGELOG.md: '## 0.1.0 (soon)' is not '## X.Y.Z (not released)' or '## X.Y.Z (YYYY-MM-DD)'",
            "CHANGELOG.md: does not begin with 0.2.0, the version of CMakeLists.txt",
            "docs/a.md: names chainmail-launcher_0.1.0; the version is 0.2.0"])


@unittest.skipUnless(shutil.which("doxygen"), "doxygen is missing: install the package doxygen")
class DoxygenTest(Tree):
    SEEDS = [
        ("namespace chainmail", "", "namespace chainmail"),
        ("class Open", "class Open {};", "class chainmail::Open"),
        ("member", "/// Options.\nstruct Options { int size = 0; };", "member chainmail::Options::size"),
        ("function of a class", "/// A.\nclass A {\n public:\n  void go();\n};", "function chainmail::A::go()"),
        ("destructor", "/// A.\nclass A {\n public:\n  ~A();\n};", "function chainmail::A::~A()"),
        ("free function", "int run(int rank);", "function chainmail::run(int rank)"),
        ("enumerator", "/// E.\nenum class E {\n  kA,  ///< a\n  kB,\n};", "enumerator chainmail::E::kB"),
        ("type name", "using Rank = int;", "typedef chainmail::Rank"),
        ("constant", "inline constexpr int kMost = 1;", "member chainmail::kMost"),
        ("concept", "template <typename T>\nconcept Small = sizeof(T) < 9;", "concept chainmail::Small"),
        ("macro", "#define CHAINMAIL_NEW 1", "macro CHAINMAIL_NEW"),
    ]
    CLEAN = ("/// A.\nclass A {\n public:\n  A(const A&) = delete;\n  virtual ~A() = default;\n"
             " private:\n  int hidden_ = 0;\n};\nnamespace internal {\nint inner();\n}\n")

    def problems_of(self, body, words="/// All.\n"):
        self.write("base/error.h", HEAD)
        self.write("base/export.h", HEAD)
        self.write("plugin/include/chainmail/a.h", f"{HEAD}{words}namespace chainmail {{\n{body}\n}}\n")
        with open(os.path.join(os.path.dirname(__file__), "../../docs/maintainers/Doxyfile"),
                  encoding="utf-8") as settings:
            self.write("docs/maintainers/Doxyfile", settings.read())
        return doxygen.check(shutil.which("doxygen"), self.root)[0]

    def test_documented(self):
        self.assertEqual(self.problems_of(self.CLEAN), [])

    def test_every_kind_of_symbol_is_found(self):
        for what, body, wanted in self.SEEDS:
            with self.subTest(what):
                problems = self.problems_of(body or self.CLEAN, "/// All.\n" if body else "")
                self.assertTrue(any(wanted in problem and "is not documented" in problem
                                    for problem in problems), problems)

    def test_header_that_is_not_read(self):
        self.problems_of(self.CLEAN)
        self.write("docs/maintainers/Doxyfile", "INPUT = base/error.h base/export.h\nQUIET = YES\n"
                                                "GENERATE_LATEX = NO\n")
        self.assertIn("plugin/include/chainmail/a.h: doxygen has not read it (INPUT of "
                      "docs/maintainers/Doxyfile)", doxygen.check(shutil.which("doxygen"), self.root)[0])


if __name__ == "__main__":
    unittest.main()
