"""Whether the images of k8s/ have each shared library that the binary links.

    image_packages.py BINARY DOCKERFILE...

The package of each library is dpkg's answer here. An image has it where its last stage but one installs it, or
where a package that is installed depends on it. Libraries that belong to no package (Arrow's and NCCL's, of Python
packages) the build stage copies to /out, and the last stage from there; CUDA's toolkit is taken to be there. Exit code
77: this is no Debian system.
"""
import functools
import os
import re
import shutil
import subprocess
import sys

BASE = {"libc6", "libgcc-s1", "libstdc++6"}  # of debian:bookworm-slim
TOOLKIT = re.compile(r"lib(cuda|cudart|cublas|cublasLt|cupti|nvrtc|nvidia-ml)\.so")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout


def linked_libraries(binary):
    """Names that the binary itself asks for -> where they are here."""
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-d", binary)))
    places = dict(re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", binary), re.M))
    return {name: places.get(name) for name in needed if not name.startswith("ld-linux")}


def packages_of(paths):
    """Path -> the package that has it, None where none has. dpkg reads all its lists for each call, so there is one."""
    places = {path: [place for file in (path, os.path.realpath(path)) for place in (file, file.removeprefix("/usr"), "/usr" + file)]
              for path in paths}
    said = output("dpkg", "-S", *{place for alike in places.values() for place in alike})
    owners = {place: owner for owner, place in re.findall(r"^([^\s:,]+)[^\n]*?: (/.*)$", said, re.M)}
    return {path: next((owners[place] for place in alike if place in owners), None) for path, alike in places.items()}


@functools.lru_cache(None)
def installed_packages():
    """What is installed here: package -> the names that it depends on, all of alternatives."""
    lines = output("dpkg-query", "-W", "-f", "${db:Status-Abbrev}\t${Package}\t${Depends}, ${Pre-Depends}\n").splitlines()
    fields = [line.split("\t") for line in lines if line.startswith("ii")]
    return {name: [re.split(r"[ (:]", part.strip())[0] for part in re.split(r"[,|]", depends) if part.strip()]
            for _, name, depends in fields}


def packages_of_image(dockerfile):
    """What the stage `runtime` installs, and all that depends on."""
    stage = re.search(r"^FROM \S+ AS runtime$(.*?)(?=^FROM)", open(dockerfile).read(), re.M | re.S).group(1)
    words = re.search(r"--no-install-recommends(.*?)&&", stage, re.S).group(1).replace("\\", " ").split()
    found, todo = set(), [word for word in words if "$" not in word]
    missing = [word for word in todo if word not in installed_packages()]
    while todo:
        package = todo.pop()
        if package not in found:
            found.add(package)
            todo += installed_packages().get(package, [])
    return found, missing


def copied_libraries(dockerfile):
    """Names without a version ("libarrow.so") that the build stage copies to /out, if the last stage takes them."""
    text = open(dockerfile).read().replace("\\\n", " ")
    runtime = text.index(" AS runtime")
    if not re.search(r"^COPY --from=build /out/ /usr/local/lib/$", text[runtime:], re.M):
        return set()
    copies = re.findall(r"\bcp (.*?) /out/", text[:runtime])
    return {name for words in copies for name in re.findall(r"[^\s/]+\.so(?=\.)", words)}


def main():
    if not shutil.which("dpkg") or not shutil.which("readelf"):
        print("SKIPPED: no dpkg or readelf")
        return 77
    binary, dockerfiles = sys.argv[1], sys.argv[2:]
    libraries = linked_libraries(binary)
    if len(libraries) < 5:
        print(f"FAILED: {binary} links {sorted(libraries)}: that is not the binary of braid")
        return 1
    problems = []
    owners = packages_of([path for path in libraries.values() if path])
    for dockerfile in dockerfiles:
        there, unknown = packages_of_image(dockerfile)
        copied = copied_libraries(dockerfile)
        if "ca-certificates" not in there:
            problems.append(f"{dockerfile} lacks ca-certificates: no server of https:// or s3:// would be believed")
        problems += [f"{dockerfile} installs {package}, which is not installed here" for package in unknown]
        for name, path in sorted(libraries.items()):
            package = owners.get(path)
            if path is None:
                problems.append(f"{name}: not found here")
            elif package and package not in there | BASE:
                problems.append(f"{dockerfile} lacks {package}, which has {name}")
            elif not package and not TOOLKIT.match(name) and name.split(".so")[0] + ".so" not in copied:
                problems.append(f"{dockerfile} does not copy {name}, which belongs to no package")
    print("\n".join(problems) or f"{len(libraries)} libraries are in {len(dockerfiles)} images")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
