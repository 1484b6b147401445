"""The pages' types, from the API's own description: ui/src/api/types.ts.

The shapes of answers and bodies as interfaces, and the forms of plans as data.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

HEADER: Final = (
    "// Written by docs/generate.py: change the code, then run `make docs`.\n\n"
)
_PLAIN: Final = {"string": "string", "integer": "number", "number": "number"}
_PLAIN_TOO: Final = {"boolean": "boolean", "null": "null"}


def typescript(description: Mapping[str, Any]) -> str:
    """A module with a type for each shape of the description."""
    shapes = description["components"]["schemas"]
    parts = [_interface(name, shape) for name, shape in sorted(shapes.items())]
    forms = {}
    for path in description["paths"]:
        if path.startswith("/v1/plan/"):
            body = description["paths"][path]["post"]["requestBody"]["content"]
            name = body["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
            forms[path.removeprefix("/v1/plan/")] = _form(shapes[name])
    listed = json.dumps(forms, indent=2)
    parts.append(f"export const PLAN_FORMS: Record<string, PlanField[]> = {listed};\n")
    return HEADER + _FIELD + "\n".join(parts)


_FIELD: Final = """export interface PlanField {
  name: string;
  kind: "string" | "integer" | "number" | "boolean" | "list" | "object";
  required: boolean;
  optional: boolean;
  preset: unknown;
  says: string;
  names: string[];
}

"""


def _interface(name: str, shape: Mapping[str, Any]) -> str:
    if "properties" not in shape:
        return f"export type {name} = {_type(shape)};\n"
    lines = [
        f"  {field}: {_type(kind)};"
        for field, kind in sorted(shape["properties"].items())
    ]
    return f"export interface {name} {{\n" + "\n".join(lines) + "\n}\n"


def _type(kind: Mapping[str, Any]) -> str:
    if "$ref" in kind:
        return str(kind["$ref"]).rsplit("/", 1)[1]
    if "anyOf" in kind:
        return " | ".join(dict.fromkeys(_type(one) for one in kind["anyOf"]))
    if "enum" in kind:
        return " | ".join(json.dumps(one) for one in kind["enum"])
    found = kind.get("type")
    if found == "array":
        inner = _type(kind.get("items", {}))
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if found == "object":
        more = kind.get("additionalProperties")
        return f"Record<string, {_type(more if isinstance(more, dict) else {})}>"
    return (_PLAIN | _PLAIN_TOO).get(str(found), "unknown")


def _form(shape: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Its fields, those that must be given first."""
    required = shape.get("required", [])
    fields = []
    for name, kind in shape["properties"].items():
        kinds = [one.get("type", "string") for one in kind.get("anyOf", [kind])]
        plain = next((one for one in kinds if one != "null"), "string")
        fields.append(
            {
                "name": name,
                "kind": {"array": "list"}.get(plain, plain),
                "required": name in required,
                "optional": "null" in kinds,
                "preset": kind.get("default"),
                "says": kind.get("description", ""),
                "names": kind.get("x-names", []),
            }
        )
    return sorted(fields, key=lambda field: not field["required"])
