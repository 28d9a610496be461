#!/usr/bin/env python3
"""Makes the JSON schemas of the kinds that the chart uses, for kubeconform, from the Python package kubernetes-validate.

usage: extract.py _definitions.json OUT   (the file is in the package: kubernetes-json-schema/vVERSION-local/)

Strict: a key that Kubernetes does not know is an error, as a misspelt one would be ignored by the API server. Descriptions are omitted, which are
nine tenths of the text.
"""

import json
import pathlib
import sys

KINDS = {
    "configmap-v1": "io.k8s.api.core.v1.ConfigMap",
    "daemonset-apps-v1": "io.k8s.api.apps.v1.DaemonSet",
    "namespace-v1": "io.k8s.api.core.v1.Namespace",
    "serviceaccount-v1": "io.k8s.api.core.v1.ServiceAccount",
    "clusterrole-rbac-v1": "io.k8s.api.rbac.v1.ClusterRole",
    "clusterrolebinding-rbac-v1": "io.k8s.api.rbac.v1.ClusterRoleBinding",
}


def slim(value):
    if isinstance(value, list):
        return [slim(item) for item in value]
    if not isinstance(value, dict):
        return value
    # Under "properties" the keys are names, "description" too.
    kept = {}
    for key, item in value.items():
        if key == "properties":
            kept[key] = {name: slim(sub) for name, sub in item.items()}
        elif key == "$ref":
            kept[key] = "#/definitions/" + item.rsplit("/", 1)[1]
        elif key != "description" and not key.startswith("x-kubernetes"):
            kept[key] = slim(item)
    if "properties" in kept and "additionalProperties" not in kept:
        kept["additionalProperties"] = False
    return kept


def references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].rsplit("/", 1)[1]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def main():
    source, out = sys.argv[1], pathlib.Path(sys.argv[2])
    found = json.loads(pathlib.Path(source).read_text())
    definitions = found["$defs"]
    out.mkdir(parents=True, exist_ok=True)
    for file, name in KINDS.items():
        schema = slim(definitions[name])
        needed, todo = {}, list(references(schema))
        while todo:
            one = todo.pop()
            if one not in needed:
                needed[one] = slim(definitions[one])
                todo.extend(references(needed[one]))
        schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema, "definitions": dict(sorted(needed.items()))}
        (out / f"{file}.json").write_text(json.dumps(schema, indent=1, sort_keys=True) + "\n")


main()
