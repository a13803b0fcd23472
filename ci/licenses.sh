#!/usr/bin/env bash
# ci/licenses.sh MAJOR FOLDER: puts licences into FOLDER: nitro's, and those of the crates in its library
# for PostgreSQL MAJOR. nitro.cdx.json there names them (a bill of materials, CycloneDX 1.5).
set -euo pipefail
cd "$(dirname "$0")/.."
major=${1:?usage: ci/licenses.sh MAJOR FOLDER} out=${2:?usage: ci/licenses.sh MAJOR FOLDER}
mkdir -p "$out"
cargo metadata --format-version 1 --locked --no-default-features --features "pg$major" \
    --filter-platform "$(rustc -vV | sed -n 's/^host: //p')" | python3 -c '
import json, pathlib, shutil, sys

out = pathlib.Path(sys.argv[1])
metadata = json.load(sys.stdin)
packages = {package["id"]: package for package in metadata["packages"]}
needs = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
root = next(package for package in packages.values() if package["name"] == "nitro")

# Crates that only build or test the library are not in it.
linked, ahead = set(), [root["id"]]
while ahead:
    package = ahead.pop()
    macros = any("proc-macro" in target["kind"] for target in packages[package]["targets"])
    if package not in linked and not macros:
        linked.add(package)
        ahead += [need["pkg"] for need in needs[package]
                  if any(kind["kind"] is None for kind in need["dep_kinds"])]

components = []
for package in sorted((packages[i] for i in linked), key=lambda p: (p["name"], p["version"])):
    name, version, folder = package["name"], package["version"], pathlib.Path(package["manifest_path"]).parent
    if not package["license"]:
        sys.exit(f"ci/licenses.sh: {name} {version} does not say its licence")
    texts = [path for path in sorted(folder.iterdir())
             if path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"))]
    into = out / (name if package is root else f"{name}-{version}")
    for path in texts:
        into.mkdir(exist_ok=True)
        (shutil.copytree if path.is_dir() else shutil.copyfile)(path, into / path.name)
    part = {"type": "library", "name": name, "version": version,
            "licenses": [{"expression": package["license"].replace("/", " OR ")}]}
    if package["source"]:
        part["purl"] = f"pkg:cargo/{name}@{version}"
    if package is not root:
        components.append(part)
bill = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {"type": "library", "name": "nitro", "version": root["version"],
                                   "licenses": [{"expression": root["license"]}]}},
        "components": components}
(out / "nitro.cdx.json").write_text(json.dumps(bill, indent=2) + "\n")
' "$out"
