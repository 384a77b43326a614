# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Makes the wheel for all machines out of installed prefixes, one for each minor version of torch.

    python packaging/wheel/assemble.py VERSION THIRD_PARTY OUTPUT MINOR=PREFIX...

A prefix has been installed with CMAKE_INSTALL_LIBDIR=torchMINOR, so that the CMake package in it finds its
library below the folder chainmail. Called by tools/package.sh.
"""

import ast
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import sbom  # noqa: E402
import tag  # noqa: E402
import wheel_file  # noqa: E402

PROGRAMS = ("launcher", "chainmail-info", "chainmail-pmix")
LIBRARIES = ("libchainmail.so.*", "libchainmail_mpi.so", "libchainmail_cuda.so")
PAGES = ("share/man/man1/launcher.1", "share/bash-completion/completions/launcher",
         "share/zsh/site-functions/_launcher", "share/fish/vendor_completions.d/launcher.fish")


def minor_key(minor):
    return [int(part) for part in minor.split(".")]


def torch_range(minors):
    """">=2.11,<2.16,!=2.12.*" for 2.11, 2.13, 2.14 and 2.15; all of one major version."""
    major = minors[0].split(".")[0]
    first, last = (int(minor.split(".")[1]) for minor in (minors[0], minors[-1]))
    gaps = [f"!={major}.{number}.*" for number in range(first, last) if f"{major}.{number}" not in minors]
    return ",".join([f">={minors[0]}", f"<{major}.{last + 1}", *gaps])


def metadata(version, minors, licences, licence_files):
    expression = " AND ".join(["BSD-3-Clause", *sorted({f"({text})" if " OR " in text else text
                                                      for text in licences} - {"BSD-3-Clause"})])
    lines = [
        "Metadata-Version: 2.4", "Name: chainmail", f"Version: {version}",
        "Summary: Multi-node data parallelism for LibTorch and torch.distributed, with a launcher",
        f"License-Expression: {expression}",
        *(f"License-File: {name}" for name in licence_files),
        "Keywords: torch,distributed,allreduce,data-parallel,launcher,ChainerMN",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: C++",
        "Classifier: Programming Language :: Python :: 3",
        "Classifier: Topic :: System :: Distributed Computing",
        "Requires-Python: >=3.10", f"Requires-Dist: torch{torch_range(minors)}",
        "Description-Content-Type: text/markdown"]
    return ("\n".join(lines) + "\n\n" + (HERE / "README.md").read_text(encoding="utf-8")).encode()


def python_files():
    folder = ROOT / "plugin/python/chainmail"
    return {f"chainmail/{path.relative_to(folder).as_posix()}": path.read_bytes()
            for path in sorted(folder.rglob("*.py"))}


def build_file(version, libraries):
    """chainmail/_build.py, from the file that CMake fills in for one library."""
    template = (ROOT / "plugin/python/chainmail/_build.py.in").read_text(encoding="utf-8")
    lines = [f"VERSION = {version!r}" if line.startswith("VERSION =") else
             f"LIBRARIES = {libraries!r}" if line.startswith("LIBRARIES =") else line
             for line in template.splitlines()]
    text = "\n".join(lines) + "\n"
    ast.parse(text)
    if "@" in text:
        raise SystemExit("_build.py.in has a value that this script does not know")
    return text.replace("'", '"').encode()


def cmake_dispatcher(minors):
    text = (HERE / "chainmailConfig.cmake.in").read_text(encoding="utf-8")
    return text.replace("@MINORS@", ";".join(minors)).encode()


def of_one_torch(minor, prefix):
    """(files of the wheel, where its libchainmail is from the folder chainmail)."""
    folder = prefix / f"torch{minor}"
    found = {}
    for pattern in LIBRARIES:
        paths = [path for path in sorted(folder.glob(pattern)) if not path.is_symlink()]
        if len(paths) > 1 or (not paths and pattern == LIBRARIES[0]):
            raise SystemExit(f"{folder}: {len(paths)} files are called {pattern}, wanted is one")
        for path in paths:
            found[f"chainmail/torch{minor}/{path.name}"] = path.read_bytes()
    library = next(iter(found)).removeprefix("chainmail/")
    for path in sorted((folder / "cmake/chainmail").iterdir()):
        found[f"chainmail/torch{minor}/cmake/chainmail/{path.name}"] = path.read_bytes()
    return found, library


def of_all_torches(prefix, data):
    """Headers, programs and their pages; those of one prefix serve for all."""
    found = {f"chainmail/{name}": content for name, content in sbom.files_below(prefix).items()
             if name.startswith("include/")}
    for program in PROGRAMS:
        path = prefix / "bin" / program
        if path.exists():
            found[f"{data}/scripts/{program}"] = path.read_bytes()
    for page in PAGES:
        found[f"{data}/data/{page}"] = (prefix / page).read_bytes()
    return found


def same_headers(prefixes):
    wanted, *others = ({name: data for name, data in sbom.files_below(prefix).items() if name.startswith("include/")}
                       for prefix in prefixes.values())
    if any(other != wanted for other in others):
        raise SystemExit("the headers of the prefixes differ: they are of different versions")


def contents(version, third_party, prefixes):
    """(path in the wheel -> bytes, the folder of its metadata, those that are programs), but for WHEEL."""
    minors = sorted(prefixes, key=minor_key)
    info, data = f"chainmail-{version}.dist-info", f"chainmail-{version}.data"
    same_headers(prefixes)
    files, libraries = python_files(), {}
    for minor in minors:
        found, libraries[minor] = of_one_torch(minor, prefixes[minor])
        files |= found
    files |= of_all_torches(prefixes[minors[0]], data)
    first = f"chainmail/torch{minors[0]}/cmake/chainmail"
    files["chainmail/_build.py"] = build_file(version, libraries)
    files["chainmail/cmake/chainmailConfig.cmake"] = cmake_dispatcher(minors)
    for name in ("chainmailConfigVersion.cmake", "FindLibTorch.cmake"):
        files[f"chainmail/cmake/{name}"] = files[f"{first}/{name}"]
    bundled = sbom.bundled_in(sbom.machine_code(files))
    licences = {"LICENSE": (ROOT / "LICENSE").read_bytes()}
    licences |= {f"third_party/{entry.name}": sbom.copyright_of(entry, third_party) for entry in bundled}
    files |= {f"{info}/licenses/{name}": text for name, text in licences.items()}
    bill = sbom.bill("chainmail", version, files, third_party)
    files[f"{info}/sboms/chainmail.cdx.json"] = bill.encode()
    files[f"{info}/METADATA"] = metadata(version, minors, {entry.licence for entry in bundled}, licences)
    files[f"{info}/entry_points.txt"] = (
        wheel_file.BACKEND_ENTRY_POINT + "\n[cmake.prefix]\nchainmail = chainmail\n").encode()
    return files, info, {name for name in files if name.startswith(f"{data}/scripts/")}


def main():
    version, third_party, output, *rest = sys.argv[1:]
    prefixes = {minor: pathlib.Path(prefix) for minor, prefix in (word.split("=", 1) for word in rest)}
    files, info, programs = contents(version, third_party, prefixes)
    with tempfile.TemporaryDirectory() as folder:  # auditwheel looks at wheels only
        unnamed = pathlib.Path(folder) / f"chainmail-{version}-py3-none-linux_x86_64.whl"
        wheel_file.write_wheel(unnamed, files | {f"{info}/WHEEL": wheel_file.wheel_metadata("py3-none-any")}, info)
        name = f"py3-none-{tag.proved_by(unnamed)}"
    path = pathlib.Path(output) / f"chainmail-{version}-{name}.whl"
    wheel_file.write_wheel(path, files | {f"{info}/WHEEL": wheel_file.wheel_metadata(name)}, info, programs)
    print(path)


if __name__ == "__main__":
    if len(sys.argv) < 5 or any("=" not in word for word in sys.argv[4:]):
        sys.exit(__doc__)
    main()
