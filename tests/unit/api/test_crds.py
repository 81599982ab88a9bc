"""The CRDs that the types make are Volcano's (C01 to C09) and are what k8s/crds/ holds."""

import json
from pathlib import Path

import msgspec
import pytest
import yaml

from shared.api import crdgen
from shared.api.base import View
from shared.api.crds import CRDS, Crd
from shared.api.kinds import COMMAND, Kind
from tools import write_manifests
from tools.crd_table import table_of_manifest, table_of_reference

GOLDEN = Path(__file__).parent / "golden"
REFERENCE = Path(__file__).parents[4] / "shared" / "reference" / "crd-fields"

each_crd = pytest.mark.parametrize("crd", CRDS, ids=lambda crd: crd.kind.kind)


def name_of(crd: Crd) -> str:
    return f"{crd.kind.group}_{crd.kind.plural}"


@each_crd
def test_every_field_bound_default_and_column_is_volcanos(crd: Crd) -> None:
    golden = (GOLDEN / f"{name_of(crd)}.txt").read_text()
    if crd.kind is COMMAND:  # whose target needs no uid here (C05)
        assert golden.count('"name", "uid"]') == 1
        golden = golden.replace('"name", "uid"]', '"name"]')
    theirs = msgspec.structs.replace(crd, more_columns=())
    assert table_of_manifest(crdgen.manifest(theirs)) == golden


def test_columns_of_ours_come_behind_volcanos() -> None:
    for crd in CRDS:
        version = crdgen.manifest(crd)["spec"]["versions"][0]
        shown = [column["name"] for column in version.get("additionalPrinterColumns", [])]
        assert shown == [column.name for column in (*crd.columns, *crd.more_columns)]


@each_crd
@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the golden tables stand for the reference")
def test_the_golden_table_is_the_reference(crd: Crd) -> None:
    reference = json.loads((REFERENCE / f"{name_of(crd)}.json").read_text())
    assert (GOLDEN / f"{name_of(crd)}.txt").read_text() == table_of_reference(reference)


def test_no_golden_table_is_without_a_crd() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {name_of(crd) for crd in CRDS}


def test_make_crds_would_change_no_file() -> None:
    checked_in = {path.name: path.read_text() for path in write_manifests.CRD_FOLDER.iterdir()}
    assert write_manifests.crds() == checked_in, "run `make crds` and commit the result"


@each_crd
def test_a_manifest_survives_yaml(crd: Crd) -> None:
    manifest = crdgen.manifest(crd)
    assert yaml.safe_load(yaml.safe_dump(manifest)) == manifest


@each_crd
def test_the_pod_group_alone_writes_its_status_through_the_object(crd: Crd) -> None:
    version = crdgen.manifest(crd)["spec"]["versions"][0]
    has_status = "status" in version["schema"]["openAPIV3Schema"]["properties"]
    writes_apart = "status" in (version.get("subresources") or {})
    assert writes_apart == (has_status and crd.kind.kind != "PodGroup")


@each_crd
def test_a_default_in_the_schema_is_the_default_of_the_type(crd: Crd) -> None:
    """What the API server fills in and what a missing field decodes to must not differ."""
    assert crd.kind.type is not None
    structs = [crd.kind.type]
    compared = 0
    for struct in structs:
        form = msgspec.inspect.type_info(struct)
        assert isinstance(form, msgspec.inspect.StructType)
        for field in form.fields:
            structs += [view for view in views_in(field.type) if view not in structs]
            if "default" in (schema := crdgen.schema_of(field.type)):
                assert field.default == schema["default"], f"{struct.__name__}.{field.name}"
                compared += 1
    assert compared or crd.kind.kind in {"Command", "HyperNode", "Numatopology", "NodeShard"}


def views_in(node: msgspec.inspect.Type) -> list[type[View]]:
    if isinstance(node, msgspec.inspect.StructType):
        return [node.cls]
    inner = [getattr(node, name, None) for name in ("type", "item_type", "value_type")]
    inner += list(getattr(node, "types", ()))
    return [view for child in inner if child is not None for view in views_in(child)]


def test_a_type_without_a_structural_schema_is_refused() -> None:
    class Loose(View, frozen=True, kw_only=True):
        share: frozenset[str] = frozenset()

    crd = Crd(kind=Kind(kind="Loose", group="x", plural="looses", type=Loose), description="")
    with pytest.raises(TypeError, match="FrozenSetType has no structural schema"):
        crdgen.manifest(crd)


def test_a_union_of_two_structures_is_refused() -> None:
    class Either(View, frozen=True, kw_only=True):
        value: str | bool = ""

    crd = Crd(kind=Kind(kind="Either", group="x", plural="eithers", type=Either), description="")
    with pytest.raises(TypeError, match="no structural schema for a union"):
        crdgen.manifest(crd)
