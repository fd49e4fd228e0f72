import re

from lazygnn.data.sources import SOURCES


def test_all_public_data_sets_have_a_source() -> None:
    assert set(SOURCES) == {"cora", "citeseer", "pubmed", "flickr", "reddit", "yelp", "ogbn-arxiv", "ogbn-products"}
    for name, source in SOURCES.items():
        assert source.name == name
        assert source.reader in ("planetoid", "saint", "ogb")
        assert all(url.startswith("https://") for url, _ in source.files)
        assert len(set(source.files)) == len(source.files)
    assert len({url for source in SOURCES.values() for url, _ in source.files}) == 3 * 8 + 3 * 4 + 2
    assert "split/sales_ranking/valid.csv.gz" in SOURCES["ogbn-products"].paths
    assert "raw/ind.cora.test.index" in SOURCES["cora"].paths


def test_the_files_of_planetoid_have_the_checksums_of_their_publisher() -> None:
    ids = [each for source in SOURCES.values() for each in source.git]
    assert len(ids) == len(set(ids)) == 3 * 8
    assert all(re.fullmatch("[0-9a-f]{40}", each) for each in ids)
    for source in SOURCES.values():
        assert len(source.git) == (len(source.files) if source.reader == "planetoid" else 0)
